from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import jwt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from greendot.auth.model import Grants
from greendot.auth.tokens import Tokens
from greendot.errors import TokenError
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Presence

SECRET = "a secret for tests, long enough to be taken"
NOW = 1_800_000_000_000
HOUR = {"exp": NOW // 1000 + 3_600}

tokens = Tokens(SECRET)


def sign(secret: str = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    """Sign a token as an app's own JWT library does."""
    return jwt.encode(claims, secret, algorithm=algorithm)


def read(**claims: Any) -> Grants:
    return tokens.read(sign(**{"sub": "ann"} | HOUR | claims), NOW)


def refused(token: str, now: int = NOW) -> TokenError:
    with pytest.raises(TokenError) as caught:
        tokens.read(token, now)
    return caught.value


# --- grants ---


def test_a_token_needs_a_user_and_an_end_and_no_more() -> None:
    assert read() == Grants(tenant="default", user="ann", expires_at=NOW + 3_600_000)


def test_every_claim_is_read() -> None:
    claims = {"tenant": "acme", "name": "Ann", "rooms": ["lobby", "team-*"], "watch": ["b*"], "send": False}
    assert read(**claims, iat=NOW // 1000, jti="t-1") == Grants(
        tenant="acme",
        user="ann",
        expires_at=NOW + 3_600_000,
        name="Ann",
        rooms=("lobby", "team-*"),
        watch=("b*",),
        send=False,
        issued_at=NOW,
        token_id="t-1",
    )


def test_claims_of_the_apps_own_are_ignored() -> None:
    assert read(roles=["admin"], aud="app", iss="https://example.org") == read()


def test_what_is_made_can_be_read() -> None:
    made = tokens.make("ann", NOW, 60, name="Ann", rooms=["lobby"], watch=None)
    grants = tokens.read(made, NOW)
    assert (grants.user, grants.name, grants.rooms, grants.watch) == ("ann", "Ann", ("lobby",), None)
    assert (grants.issued_at, grants.expires_at) == (NOW, NOW + 60_000)


# --- time ---


def test_a_token_ends_at_its_time_to_the_millisecond() -> None:
    token = sign(sub="ann", exp=NOW // 1000)
    assert tokens.read(token, NOW - 1).user == "ann"
    assert refused(token, NOW).expired


def test_only_a_token_that_has_ended_is_called_expired() -> None:
    assert not refused("nonsense").expired
    assert not refused(sign(secret="x" * 40, sub="ann", exp=0)).expired
    assert refused(sign(sub="ann", exp=0)).expired


def test_a_token_begins_at_its_time() -> None:
    token = sign(sub="ann", nbf=NOW // 1000 + 10, **HOUR)
    assert "not valid yet" in str(refused(token, NOW + 9_999))
    assert tokens.read(token, NOW + 10_000).user == "ann"


def test_times_may_have_fractions() -> None:
    assert read(exp=NOW / 1000 + 0.5).expires_at == NOW + 500


# --- refusals ---


def test_no_token_is_refused() -> None:
    assert str(refused("")) == "the token is missing; send one"


def test_a_token_signed_with_another_secret_is_refused_with_the_reason() -> None:
    assert "another key" in str(refused(sign(secret="another secret, also long enough", sub="ann", **HOUR)))


def test_a_changed_token_is_refused() -> None:
    head, body, signature = sign(sub="ann", **HOUR).split(".")
    forged = base64.urlsafe_b64encode(json.dumps({"sub": "root"} | HOUR).encode()).rstrip(b"=").decode()
    refused(f"{head}.{forged}.{signature}")
    refused(f"{head}.{body}.{signature[:-4]}AAAA")
    refused(f"{head}.{body}.")
    refused(f"{head}.{body}")


def test_a_token_without_a_signature_is_refused() -> None:
    refused(jwt.encode({"sub": "root"} | HOUR, None, algorithm="none"))


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
def test_a_token_of_another_algorithm_is_refused_even_with_our_secret(algorithm: str) -> None:
    long = SECRET * 2  # these algorithms require a longer secret
    token = sign(long, algorithm, sub="ann", **HOUR)
    with pytest.raises(TokenError, match="not a valid token"):
        Tokens(long).read(token, NOW)
    assert Tokens(long).read(sign(long, sub="ann", **HOUR), NOW).user == "ann"


@pytest.mark.parametrize("missing", ["sub", "exp"])
def test_a_token_without_a_user_or_an_end_is_refused_by_name(missing: str) -> None:
    claims = {name: value for name, value in ({"sub": "ann"} | HOUR).items() if name != missing}
    assert f"`{missing}`" in str(refused(sign(**claims)))


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("sub", ""),
        ("sub", "a b"),
        ("sub", 5),
        ("tenant", "a/b"),
        ("exp", "tomorrow"),
        ("exp", None),
        ("exp", True),
        ("exp", -1),
        ("exp", 1e300),
        ("exp", float("inf")),
        ("exp", float("nan")),
        ("iat", float("inf")),
        ("nbf", float("nan")),
        ("name", "x" * 201),
        ("name", ["Ann"]),
        ("name", "half a smile \ud83d"),
        ("rooms", "lobby"),
        ("rooms", ["a b"]),
        ("rooms", [""]),
        ("rooms", ["x"] * 101),
        ("watch", ["x"] * 101),
        ("send", "no"),
        ("jti", 5),
        ("jti", "half a smile \ud83d"),
        *((claim, "a\0b") for claim in ("sub", "tenant", "name", "jti")),
        *((claim, ["a\0b*"]) for claim in ("rooms", "watch")),
    ],
)
def test_a_claim_that_makes_no_sense_is_refused(claim: str, value: object) -> None:
    refused(sign(**{"sub": "ann"} | HOUR | {claim: value}))


def test_a_refusal_names_the_claim_and_never_repeats_the_token() -> None:
    token = sign(sub="ann", tenant="top secret", **HOUR)
    assert "`tenant`" in str(refused(token))
    for text in (token, token[:-2], "x" * 50):
        assert text not in str(refused(text))


@pytest.mark.parametrize(
    "token",
    [
        "a.b",
        "....",
        "é",
        "\ud800.e30.x",
        "\0",
        "W10.e30.x",
        base64.urlsafe_b64encode(b"[" * 40_000).decode().rstrip("=") + ".e30.x",
    ],
)
def test_strange_text_is_refused(token: str) -> None:
    refused(token)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.text("abc*", max_size=4)
claims = st.dictionaries(
    st.sampled_from(["sub", "exp", "tenant", "name", "rooms", "watch", "send", "iat", "nbf", "jti"]),
    scalars | st.lists(scalars, max_size=3),
)


@settings(deadline=None)
@given(claims)
@example({"exp": 10**400})
def test_any_signed_claims_are_refused_or_grant_what_can_be_sent(claims: dict[str, Any]) -> None:
    payload = {"sub": "ann"} | HOUR | claims
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(json.dumps(payload).encode()).rstrip(b"=")
    signed = head + b"." + body
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(signed, SECRET.encode())
    token = (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()
    try:
        grants = tokens.read(token, NOW)
    except TokenError:
        return
    encode_event(Presence(grants.user, grants.name, "online", NOW, None, 1), grants.expires_at)


# --- tokens with a known header, which are read without PyJWT ---


def raw_token(head: bytes, body: bytes, secret: str = SECRET) -> str:
    """Sign a token of any two parts, encoded or not."""
    signed = head + b"." + body
    signature = hmac.digest(secret.encode(), signed, "sha256")
    return (signed + b"." + encoded(signature)).decode("latin-1")


def encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def outcome(reader: Tokens, token: str) -> Grants | str:
    try:
        return reader.read(token, NOW)
    except TokenError as error:
        return str(error)


HEADS = [
    b'{"alg":"HS256","typ":"JWT"}',
    b'{"typ":"JWT","alg":"HS256","kid":"k1"}',
    b'{"alg":"none"}',
    b'{"alg":"HS384"}',
    b'{"alg":"HS256","crit":["exp"]}',
    b'{"alg":"HS256","b64":false,"crit":["b64"]}',
    b'{"alg":"none","alg":"HS256"}',
    b'{"alg":"HS256","alg":"none"}',
    b'["HS256"]',
    b"\xff",
]
BODIES = [
    json.dumps({"sub": "ann", "name": "Zoë"} | HOUR).encode(),
    json.dumps({"sub": "ann", "name": "Zoë"} | HOUR, ensure_ascii=False).encode(),
    b'{"sub":"ann","sub":"bob","exp":1900000000}',
    b'{"sub":7,"sub":"bob","exp":1900000000}',
    b'{"sub":"bob","exp":1900000000,"exp":"soon"}',
    b'{"sub":"ann","exp":1900000000,"x":NaN}',
    b'{"sub":"ann","exp":Infinity}',
    b'{"sub":"ann","exp":1900000000,"x":"\xff"}',
    b'{"sub":"ann","exp":1900000000,"x":"\\ud800"}',
    b'{"sub":"ann","exp":1900000000,"name":"\\ud800"}',
    b'{"sub":"ann","exp":1900000000,"x":"\x01"}',
    b'{"sub":"ann","exp":1900000000,"x":' + b"9" * 400 + b"}",
    b'{"sub":"ann","exp":1900000000,"x":' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"sub":"ann","exp":1900000000} ',
    b'{"sub":"ann","exp":1900000000}}',
    b'\xef\xbb\xbf{"sub":"ann","exp":1900000000}',
    '{"sub":"ann","exp":1900000000}'.encode("utf-16"),
    b'{"sub":"ann"}',
    b'{"sub":"ann","exp":5}',
    b"[]",
    b"",
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:60]))
@pytest.mark.parametrize("head", HEADS, ids=repr)
def test_a_token_read_twice_is_read_the_same_way(head: bytes, body: bytes) -> None:
    token = raw_token(encoded(head), encoded(body))
    used = Tokens(SECRET)
    used.read(sign(sub="ann", **HOUR), NOW)
    first = outcome(used, token)
    if isinstance(first, Grants):
        assert encoded(head) in used._heads
    assert outcome(used, token) == first == outcome(Tokens(SECRET), token)


valid = st.sampled_from(
    [sign(sub="ann", **HOUR), sign(sub="bob", name="Zoë", rooms=["a*"], **HOUR), sign(sub="eve", exp=5)]
)
signs = st.sampled_from("=.-_+/ \n\0AQgw0é\ud800")
change = st.tuples(st.sampled_from(["put", "insert", "cut"]), st.integers(0, 400), signs | st.characters())


@settings(deadline=None, max_examples=300)
@given(valid, st.lists(change, max_size=3), st.booleans())
@example(sign(sub="ann", **HOUR), [("insert", 400, "=")], False)
def test_a_token_changed_in_any_way_is_read_as_if_it_were_the_first(
    token: str, changes: list[tuple[str, int, str]], signed_again: bool
) -> None:
    for how, at, sign_ in changes:
        at %= len(token) + 1
        token = token[:at] + ("" if how == "cut" else sign_) + token[at + (how != "insert") :]
    if signed_again and token.isascii() and token.count(".") >= 2:
        head, _, body = token.rpartition(".")[0].partition(".")
        token = raw_token(head.encode(), body.encode())
    used = Tokens(SECRET)
    used.read(sign(sub="ann", **HOUR), NOW)
    assert outcome(used, token) == outcome(Tokens(SECRET), token)


def test_headers_are_remembered_up_to_a_bound() -> None:
    reader = Tokens(SECRET)
    for number in range(100):
        assert reader.read(jwt.encode({"sub": "ann"} | HOUR, SECRET, headers={"kid": str(number)}), NOW).user == "ann"
    assert len(reader._heads) <= 16


def test_a_token_for_one_channel_is_no_token_of_a_session() -> None:
    token = sign(sub="ann", channel="news", **HOUR)
    for _ in range(2):  # the second read knows the header of the first
        assert "subscription" in str(refused(token))
    tokens.read(sign(sub="ann", **HOUR), NOW)
    assert "subscription" in str(refused(token))


async def test_a_token_for_one_channel_is_read_with_its_claims() -> None:
    grants, claims = await tokens.verify_claims(sign(sub="ann", channel="news", **HOUR), NOW)
    assert (grants.user, claims["channel"]) == ("ann", "news")
