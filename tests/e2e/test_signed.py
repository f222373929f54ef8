"""Authentication of clients: all kinds of tokens and keys, transports of the token, and JWKS."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from typing import Any

import jwt
import msgspec
import pytest

from greendot.app.server import Greendot
from greendot.app.tokens import make_tokens
from greendot.auth.jwks import AGAIN_S
from greendot.config import Auth, AuthKey, Settings
from greendot.errors import ConfigError
from greendot.protocol.codes import Close
from greendot.protocol.tokens import MOST_CHARACTERS
from greendot.testing.server import SECRET, Served, serving
from greendot.testing.wire import Closed, WireClient
from signers import ALGORITHMS, key_server, signer

START_S = 1_800_000_000
CLAIMS = {"sub": "alice", "exp": START_S + 3_600}


def keys(*settings: dict[str, Any]) -> tuple[AuthKey, ...]:
    return msgspec.convert(settings, tuple[AuthKey, ...])


ALL = keys(*(signer(alg).setting(alg) for alg in ALGORITHMS))


async def refused(served: Served, token: str) -> int:
    """Return the close code of a hello with this token. No session may be registered."""
    client = await served.socket()
    client.send(type="hello", token=token)
    closed = await client.closed()
    assert token not in closed.reason
    await served.settle()
    assert served.node.stats()["sessions"] == 0
    return closed.code


# --- algorithms and keys ---


async def test_tokens_of_every_algorithm_are_let_in_beside_the_secret() -> None:
    async with serving(auth={"secret": SECRET, "keys": ALL}) as served:
        for alg in ALGORITHMS:
            client = await served.socket()
            welcome = await client.hello(signer(alg).sign(alg, **CLAIMS | {"sub": f"user-{alg}"}))
            assert welcome["user"] == f"user-{alg}"
        await served.client("bob")


async def test_no_client_is_the_user_that_stands_for_the_app() -> None:
    async with serving(auth={"secret": SECRET}) as served:
        assert await refused(served, served.token("system")) == Close.BAD_TOKEN


def part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def bad_tokens() -> dict[str, tuple[int, str]]:
    head, body, signature = signer("RS256").sign("RS256", **CLAIMS, aud="chat", iss="id").split(".")
    swapped = part(json.dumps({"alg": "HS256", "kid": "RS256", "typ": "JWT"}).encode())
    good = {"aud": "chat", "iss": "id"}
    found = {}
    for alg in ALGORITHMS:
        sign = signer(alg).sign
        found |= {
            f"{alg} expired": (4005, sign(alg, **good | CLAIMS | {"exp": START_S - 1})),
            f"{alg} not valid yet": (4500, sign(alg, **good | CLAIMS, nbf=START_S + 60)),
            f"{alg} of another audience": (4500, sign(alg, **good | CLAIMS | {"aud": "mail"})),
            f"{alg} of another issuer": (4500, sign(alg, **good | CLAIMS | {"iss": "ego"})),
            f"{alg} with another key": (4500, signer(alg, "forger").sign(alg, **good | CLAIMS)),
            f"{alg} with a key nobody has": (4500, sign("nobody", **good | CLAIMS)),
            f"{alg} cut off": (4500, sign(alg, **good | CLAIMS)[:-3]),
            f"{alg} without an end": (4500, sign(alg, **good, sub="alice")),
            f"{alg} with a retired key": (4500, signer(alg, "retired").sign(f"{alg}-retired", **good | CLAIMS)),
            f"{alg} with a key that has ended": (4005, signer(alg, "ended").sign(f"{alg}-ended", **good | CLAIMS)),
            f"{alg} of another tenant": (
                4500,
                signer(alg, "acme").sign(f"{alg}-acme", **good | CLAIMS, tenant="default"),
            ),
        }
    return found | {
        "alg swapped": (4500, f"{swapped}.{body}.{signature}"),
        "no alg": (4500, jwt.encode(CLAIMS | good, None, algorithm="none")),
        "header only": (4500, head),
    }


async def test_a_bad_token_is_refused_with_the_right_code_and_none_is_let_in() -> None:
    configured = [signer(alg).setting(alg) for alg in ALGORITHMS]
    configured += [signer(alg, "retired").setting(f"{alg}-retired", retired=True) for alg in ALGORITHMS]
    configured += [signer(alg, "ended").setting(f"{alg}-ended", not_after="2026-01-01T00:00:00Z") for alg in ALGORITHMS]
    configured += [signer(alg, "acme").setting(f"{alg}-acme", tenant="acme") for alg in ALGORITHMS]
    auth = {"keys": keys(*configured), "audience": "chat", "issuer": "id"}
    async with serving(auth=auth) as served:
        for what, (code, token) in bad_tokens().items():
            assert await refused(served, token) == code, what
        for alg in ALGORITHMS:  # tokens of these signers are otherwise accepted
            client = await served.socket()
            await client.hello(signer(alg).sign(alg, **CLAIMS, aud=["chat"], iss="id"))


async def test_a_token_of_a_megabyte_ends_the_connection_before_it_is_parsed() -> None:
    async with serving() as served:
        bystander = await served.client("bob")
        client = await served.socket()
        client.send(type="hello", token="x" * 1_000_000)
        assert (await client.closed()).code in (1009, 1006)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await served.socket(headers={"Authorization": "Bearer " + "x" * 1_000_000})
        await bystander.quiet()


def long_tokens() -> dict[str, str]:
    claims = CLAIMS | {"x": "y" * 700_000}
    small = CLAIMS | {"x": "y" * 40_000}
    most = MOST_CHARACTERS
    return {
        "letters": "x" * 1_000_000,
        "dots": "." * 1_000_000,
        "well signed": jwt.encode(claims, SECRET),
        "well signed with RSA": signer("RS256").sign("RS256", **claims),
        "as long as may be": "x" * most,
        "dots, as long as may be": "." * most,
        "a header as long as may be": f"{part(b'[' * (most // 2))}.e30.x",
        "a header with a long name": f"{part(json.dumps({'alg': 'HS256', 'kid': 'x' * 40_000}).encode())}.e30.x",
        "a number without end": part(b'{"alg":' + b"9" * 40_000 + b"}") + ".e30.x",
        "a long signature": f"{jwt.encode(CLAIMS, SECRET)}{'A' * 60_000}",
        "a long signature of RSA": f"{signer('RS256').sign('RS256', **CLAIMS)}{'A' * 60_000}",
        "a long signature of ECDSA": f"{signer('ES256').sign('ES256', **CLAIMS)}{'A' * 60_000}",
        "a long one signed with another key": jwt.encode(small, "another secret, also long enough"),
        "the same with Ed25519": signer("EdDSA", "forger").sign("EdDSA", **small),
        "no base64": "é" * most,
    }


@pytest.mark.parametrize("what", long_tokens().keys())
def test_no_token_takes_long_however_long_it_is(what: str) -> None:
    tokens = make_tokens(Auth(SECRET, ALL), time.monotonic)
    token = long_tokens()[what]
    took = []
    for _ in range(5):
        before = time.thread_time()
        with pytest.raises(Exception, match="token"):
            tokens.read(token, START_S * 1000)
        took.append(time.thread_time() - before)
    assert min(took) < 0.05
    if len(token) > MOST_CHARACTERS:
        assert min(took) < 0.001


# --- time ---


async def test_a_socket_outlives_its_token_by_the_leeway_and_no_more() -> None:
    async with serving(auth={"secret": SECRET, "leeway_s": 20.0}) as served:
        alice = await served.client("alice", claims={"ttl_s": 100})
        await served.advance(119.999, alive=[alice])
        late = await served.client("alice", claims={"ttl_s": -19})
        await served.advance(0.001)
        assert (await alice.closed()).code == 4005
        await served.advance(1.0)
        assert (await late.closed()).code == 4005
        assert len(served.node.registry.sessions) == 2  # both may reconnect with another token


async def test_a_socket_ends_with_the_key_that_let_it_in() -> None:
    ending = signer("EdDSA").setting("k1", not_after="2027-01-15T08:01:00Z")  # a minute after the start
    async with serving(auth={"keys": keys(ending)}) as served:
        client = await served.socket()
        await client.hello(signer("EdDSA").sign("k1", **CLAIMS))
        await served.advance(59.999, alive=[client])
        await served.advance(0.001)
        assert (await client.closed()).code == 4005


# --- transport of the token ---


async def test_a_token_may_come_in_the_header_of_the_request() -> None:
    async with serving() as served:
        client = await served.socket(headers={"Authorization": f"Bearer {served.token('alice')}"})
        client.send(type="hello")
        assert (await client.receive("welcome"))["data"]["user"] == "alice"
        assert "sec-websocket-protocol" not in client.head.lower()


@pytest.mark.parametrize("unusual", [False, True])
async def test_a_token_may_come_as_a_subprotocol_and_is_not_repeated(unusual: bool) -> None:
    async with serving() as served:
        token = served.token("alice")
        headers = {"Sec-WebSocket-Protocol": f"greendot.v1, bearer.{token}"}
        if unusual:
            headers["X_Odd"] = "a header that only the parser for all of HTTP reads"
        client = await served.socket(headers=headers)
        names = [line for line in client.head.split("\r\n") if line.lower().startswith("sec-websocket-protocol")]
        assert names == ["Sec-WebSocket-Protocol: greendot.v1"]
        assert token not in client.head
        client.send(type="hello")
        assert (await client.receive("welcome"))["data"]["user"] == "alice"


async def test_the_token_of_the_hello_goes_before_that_of_the_request() -> None:
    async with serving() as served:
        client = await served.socket(headers={"Authorization": f"Bearer {served.token('alice')}"})
        await client.hello(served.token("bob"))
        assert client.welcome["user"] == "bob"
        client = await served.socket(headers={"Authorization": f"Bearer {served.token('alice')}"})
        client.send(type="hello", token="garbage")
        assert (await client.closed()).code == 4500


async def test_a_bad_token_of_the_request_is_refused_at_hello_with_its_code() -> None:
    async with serving() as served:
        for token, code in (("garbage", 4500), (served.token("alice", ttl_s=-1), 4005)):
            client = await served.socket(headers={"Authorization": f"Bearer {token}"})
            client.send(type="hello")
            assert (await client.closed()).code == code


async def test_a_token_in_the_address_counts_for_nothing_unless_it_is_switched_on() -> None:
    async with serving() as served:
        client = await served.socket(f"/v1/connect?token={served.token('alice')}")
        client.send(type="hello")
        assert (await client.closed()).code == 4500
    async with serving(auth={"secret": SECRET, "token_in_query": True}) as served:
        for headers in (None, {"X_Odd": "by the other way in"}):
            client = await served.socket(f"/v1/connect?token={served.token('alice')}", headers)
            client.send(type="hello")
            assert (await client.receive("welcome"))["data"]["user"] == "alice"


async def test_no_token_is_logged_or_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(auth={"secret": SECRET, "token_in_query": True}) as served:
        token = served.token("alice")
        signature = token.rpartition(".")[2]
        clients = [
            await served.socket(f"/v1/connect?token={token}"),
            await served.socket(f"/v1/connect?token={token}", {"X_Odd": "by the other way in"}),
            await served.socket(headers={"Authorization": f"Bearer {token}"}),
            await served.socket(headers={"Sec-WebSocket-Protocol": f"greendot.v1, bearer.{token}"}),
        ]
        for client in clients:
            client.send(type="hello")
            await client.receive("welcome")
        client = await served.socket(f"/v1/connect?token={token[:-2]}")
        client.send(type="hello")
        assert signature[:-2] not in str(await client.closed())
        for elsewhere in ("/v1/elsewhere", "/v1/nodes"):
            with pytest.raises(ConnectionError) as caught:
                await served.socket(f"{elsewhere}?token={token}")
            assert signature not in str(caught.value)
        for connection in served.node.registry.connections.values():
            assert not connection.token
        await served.client("bob")
    assert signature not in caplog.text


# --- at the start ---


@pytest.mark.parametrize(
    ("engine", "auth", "why"),
    [
        ("memory", {}, "no token could be verified"),
        ("redis://127.0.0.1:1", {"jwks_url": "https://id.example.org/keys"}, "sign their messages with it"),
    ],
)
def test_a_server_that_could_not_verify_anything_does_not_start(engine: str, auth: dict[str, Any], why: str) -> None:
    settings = Settings(auth=Auth(**auth), engine=msgspec.convert({"url": engine}, type(Settings().engine)))
    with pytest.raises(ConfigError, match=why):
        Greendot(settings)


# --- JWKS ---


async def hello(served: Served, token: str) -> str | tuple[int, int | None]:
    """Send hello and return the user, or the close code and the retry time."""
    client = await served.socket()
    client.send(type="hello", token=token)
    frame = await next_frame(client)
    if frame["type"] == "welcome":
        user: str = frame["data"]["user"]
        return user
    if frame["type"] == "overloaded":
        return (await client.closed()).code, frame["data"]["retry_in_ms"]
    return frame["code"], None


async def next_frame(client: WireClient) -> dict[str, Any]:
    try:
        return await client.receive()
    except Closed as closed:
        return {"type": "closed", "code": closed.code}


async def test_keys_are_rotated_without_an_interruption_for_clients() -> None:
    old, new = signer("RS256"), signer("ES256")
    async with (
        key_server(old.jwk("old")) as provider,
        serving(auth={"jwks_url": provider.url, "jwks_refresh_s": 300.0}) as served,
    ):
        assert provider.requests == 1
        assert await hello(served, old.sign("old", **CLAIMS)) == "alice"
        provider.keys.append(new.jwk("new"))
        await served.advance(AGAIN_S)
        assert await hello(served, new.sign("new", **CLAIMS)) == "alice"  # the server fetches the unknown key
        assert await hello(served, old.sign("old", **CLAIMS)) == "alice"
        provider.keys = [new.jwk("new")]
        await served.advance(300)  # the withdrawn key is removed without a request of a client
        assert provider.requests == 3
        assert await hello(served, old.sign("old", **CLAIMS)) == (4500, None)
        assert await hello(served, new.sign("new", **CLAIMS)) == "alice"


async def test_a_key_server_that_is_down_is_waited_for_and_its_users_are_asked_to_come_back() -> None:
    key = signer("EdDSA")
    async with key_server(key.jwk("k")) as provider:
        pass  # the key server has stopped
    port = int(provider.url.split(":")[2].partition("/")[0])
    async with serving(auth={"secret": SECRET, "jwks_url": provider.url}) as served:
        code, retry_in_ms = await hello(served, key.sign("k", **CLAIMS))  # type: ignore[misc]
        assert code == 4003  # reconnect later
        assert 0 < retry_in_ms <= AGAIN_S * 1000
        bob = await served.client("bob")  # its token needs no key of that server
        bob.send(type="token.refresh", token=key.sign("k", **CLAIMS | {"sub": "bob"}), id=1)
        error = await bob.receive("error")
        assert (error["code"], error["retry"]) == ("unavailable", True)
        async with key_server(key.jwk("k"), port=port):
            await served.advance(AGAIN_S)
            assert await hello(served, key.sign("k", **CLAIMS)) == "alice"
            await bob.request(type="token.refresh", token=key.sign("k", **CLAIMS | {"sub": "bob"}))
        await served.advance(3_000 - 900)  # the key server is down again for a long time
        assert await hello(served, key.sign("k", **CLAIMS)) == "alice"


@pytest.mark.parametrize("how", ["huge", "html", "empty", "error"])
async def test_a_key_server_that_answers_nonsense_changes_nothing(how: str) -> None:
    key = signer("EdDSA")
    async with (
        key_server(key.jwk("k")) as provider,
        serving(auth={"jwks_url": provider.url, "jwks_refresh_s": 60.0}) as served,
    ):
        provider.body = {"huge": b" " * 10_000_000, "html": b"<html>", "empty": b'{"keys":[]}', "error": b"{}"}[how]
        if how == "error":
            provider.head = "HTTP/1.1 500 Oops\r\n"
        await served.advance(130)
        assert provider.requests >= 3
        assert await hello(served, key.sign("k", **CLAIMS)) == "alice"


async def test_other_clients_are_served_while_keys_are_fetched_slowly() -> None:
    old, new = signer("RS256"), signer("EdDSA")
    async with key_server(old.jwk("old")) as provider, serving(auth={"jwks_url": provider.url}) as served:
        await served.advance(AGAIN_S)
        provider.keys.append(new.jwk("new"))
        provider.hold.clear()
        newcomers = [await served.socket() for _ in range(20)]
        for number, client in enumerate(newcomers):
            client.send(type="hello", token=new.sign("new", **CLAIMS | {"sub": f"new-{number}"}))
        gone = await served.socket()
        gone.send(type="hello", token=new.sign("new", **CLAIMS | {"sub": "gone"}))
        known = await served.socket()
        await known.hello(old.sign("old", **CLAIMS))
        await known.quiet()
        await gone.end()
        provider.hold.set()
        for number, client in enumerate(newcomers):
            assert (await client.receive("welcome"))["data"]["user"] == f"new-{number}"
        assert provider.requests == 2


async def test_a_flood_of_unknown_keys_is_one_request_to_the_key_server() -> None:
    key = signer("RS256")
    async with key_server(key.jwk("k")) as provider, serving(auth={"jwks_url": provider.url}) as served:
        await served.advance(AGAIN_S)
        for number in range(100):
            code, _ = await hello(served, key.sign(f"nobody-{number}", **CLAIMS))  # type: ignore[misc]
            assert code in (4500, 4003)
        assert provider.requests == 2
        assert await hello(served, key.sign("k", **CLAIMS)) == "alice"
