"""Signatures by the published vectors, and requests that are late, changed or signed by others."""

from __future__ import annotations

from hashlib import md5

import pytest

from greendot.compat.pusher.signature_model import (
    LATE_S,
    SignedRequest,
    WrongRequest,
    channel_text,
    is_signed,
    sign,
    user_text,
)

KEY, SECRET = "278d425bdf160c739803", "7ad3773142a6692b25b8"
BODY = b'{"name":"foo","channels":["project-3"],"data":"{\\"some\\":\\"data\\"}"}'
QUERY = (
    "auth_key=278d425bdf160c739803&auth_timestamp=1353088179&auth_version=1.0&body_md5=ec365a775a4cd0599faeb73354201b6f"
)
SIGNATURE = "da454824c97ba181a32ccc17a72625ba02771f50b50e1e7430e47a1f3f457e6c"
NOW_S = 1353088179


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        (
            channel_text("1234.1234", "private-foobar", None),
            "58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4",
        ),
        (
            channel_text("1234.1234", "presence-foobar", '{"user_id":10,"user_info":{"name":"Mr. Channels"}}'),
            "31935e7d86dba64c2a90aed31fdc61869f9b22ba9d8863bba239c03ca481bc80",
        ),
        (
            user_text("1234.1234", '{"id":"12345"}'),
            "4708d583dada6a56435fb8bc611c77c359a31eebde13337c16ab43aa6de336ba",
        ),
    ],
)
def test_a_published_vector_is_right(text: str, signature: str) -> None:
    assert sign(SECRET, text) == signature
    assert is_signed(["another", SECRET], text, signature)
    assert not is_signed([SECRET], text, signature[:-1] + "x")
    assert not is_signed([SECRET], text, "ü")
    assert not is_signed([], text, signature)


def request(query: str = QUERY, signature: str = SIGNATURE, path: str = "/apps/3/events") -> SignedRequest:
    return SignedRequest("POST", path, f"{query}&auth_signature={signature}".encode())


def signed(query: str, body: bytes = BODY) -> SignedRequest:
    text = "POST\n/apps/3/events\n" + "&".join(sorted(query.split("&")))
    return request(query, sign(SECRET, text))


def check(asked: SignedRequest, secrets: list[str], body: bytes, now_s: int) -> None:
    asked.check(secrets, now_s)
    asked.check_body(body)


def test_the_published_request_is_accepted() -> None:
    check(request(), [SECRET], BODY, NOW_S)
    check(request(), ["new secret", SECRET], BODY, NOW_S + LATE_S)


@pytest.mark.parametrize(
    ("asked", "body", "now_s"),
    [
        (request(), BODY, NOW_S + LATE_S + 1),
        (request(), BODY, NOW_S - LATE_S - 1),
        (request(), BODY + b" ", NOW_S),
        (request(signature="0" * 64), BODY, NOW_S),
        (request(path="/apps/4/events"), BODY, NOW_S),
        (request(QUERY.replace("1.0", "1.1")), BODY, NOW_S),
        (request(QUERY + "&info=x"), BODY, NOW_S),
        (signed(f"auth_key={KEY}&auth_timestamp={NOW_S}&auth_version=1.0"), BODY, NOW_S),  # a body without its MD5
        (signed(f"auth_key={KEY}&auth_timestamp=soon&auth_version=1.0"), b"", NOW_S),
        (signed(f"auth_key={KEY}&auth_version=1.0"), b"", NOW_S),
    ],
)
def test_a_request_that_is_late_or_changed_is_refused(asked: SignedRequest, body: bytes, now_s: int) -> None:
    with pytest.raises(WrongRequest):
        check(asked, [SECRET], body, now_s)


def test_the_md5_of_an_empty_body_may_be_given_or_left_out() -> None:
    plain = f"auth_key={KEY}&auth_timestamp={NOW_S}&auth_version=1.0"
    check(signed(plain), [SECRET], b"", NOW_S)
    given = f"{plain}&body_md5={md5(b'', usedforsecurity=False).hexdigest()}"
    check(signed(given), [SECRET], b"", NOW_S)


@pytest.mark.parametrize("query", [b"a=1&" * 100, b"auth_key=%ff%fe", b"\xff=1", b"info=a&info=b", b"info=a&Info=b"])
def test_a_query_that_cannot_be_read_is_refused(query: bytes) -> None:
    with pytest.raises(WrongRequest):
        SignedRequest("GET", "/", query)


def test_a_request_is_accepted_until_its_time_is_late() -> None:
    request = signed("auth_key=key&auth_timestamp=1000&auth_version=1.0")
    assert request.accepted_until_s == 1000 + LATE_S
