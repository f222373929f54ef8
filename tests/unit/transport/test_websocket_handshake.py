from __future__ import annotations

import pytest

from greendot.transport.websocket_handshake import (
    HandshakeFields,
    KnownHandshakes,
    Upgrade,
    handshake_fields,
    plain_upgrade,
)

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
PLAIN = {
    "Host": "localhost:8080",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
}
CHROME = {
    "Host": "localhost:8080",
    "Connection": "Upgrade",
    "Pragma": "no-cache",
    "Cache-Control": "no-cache",
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36",
    "Upgrade": "websocket",
    "Origin": "http://localhost:8080",
    "Sec-WebSocket-Version": "13",
    "Accept-Encoding": "gzip, deflate, br, zstd",
    "Accept-Language": "en-GB,en;q=0.9",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
}
FIREFOX = {
    "Host": "localhost:8080",
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept": "*/*",
    "Sec-WebSocket-Version": "13",
    "Origin": "http://localhost:8080",
    "Sec-WebSocket-Extensions": "permessage-deflate",
    "Sec-WebSocket-Key": KEY,
    "Connection": "keep-alive, Upgrade",
    "Sec-Fetch-Mode": "websocket",
    "Upgrade": "websocket",
}


def request(headers: dict[str, str], line: str = "GET /v1/connect HTTP/1.1") -> bytes:
    return "\r\n".join([line, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()


@pytest.mark.parametrize("headers", [PLAIN, CHROME, FIREFOX], ids=["plain", "Chrome", "Firefox"])
def test_what_clients_send_is_recognised(headers: dict[str, str]) -> None:
    sent = {name.lower().encode(): value.encode() for name, value in headers.items()}
    assert plain_upgrade(request(headers)) == Upgrade(KEY.encode(), HandshakeFields(headers.get("User-Agent")), sent)


@pytest.mark.parametrize(
    ("name", "value"),
    [("Upgrade", "WebSocket"), ("Connection", "UPGRADE"), ("Connection", " keep-alive ,upgrade "), ("User-Agent", "")],
)
def test_how_it_is_written_makes_no_difference(name: str, value: str) -> None:
    found = plain_upgrade(request(PLAIN | {name: value}))
    assert found is not None
    assert (found.key, found.asked) == (KEY.encode(), HandshakeFields(None))


def test_a_query_makes_no_difference() -> None:
    assert plain_upgrade(request(PLAIN, "GET /v1/connect?from=here&x=%20 HTTP/1.1")) is not None


whole = request(PLAIN)
OTHERS = {
    "nothing": b"",
    "the first half": whole[:60],
    "all but the last byte": whole[:-1],
    "more than a request": whole + b"\x81\x80\0\0\0\0",
    "two requests": whole * 2,
    "another path": request(PLAIN, "GET /v1/connected HTTP/1.1"),
    "a path below": request(PLAIN, "GET /v1/connect/ HTTP/1.1"),
    "a path written otherwise": request(PLAIN, "GET /v1/%63onnect HTTP/1.1"),
    "a whole address": request(PLAIN, "GET http://localhost/v1/connect HTTP/1.1"),
    "a fragment": request(PLAIN, "GET /v1/connect?x#y HTTP/1.1"),
    "another method": request(PLAIN, "POST /v1/connect HTTP/1.1"),
    "an older version": request(PLAIN, "GET /v1/connect HTTP/1.0"),
    "two blanks": request(PLAIN, "GET  /v1/connect HTTP/1.1"),
    "no headers": request({}),
    "lines that end otherwise": whole.replace(b"\r\n", b"\n"),
    "a line that is continued": whole.replace(b"Host: ", b"Host:\r\n "),
    "a blank before the colon": whole.replace(b"Host:", b"Host :"),
    "a header without a name": whole.replace(b"Host:", b":"),
    "a header without a colon": whole.replace(b"Host:", b"Host"),
    "a header twice": whole.replace(b"Host:", b"Upgrade: websocket\r\nHost:"),
    "a key twice, written otherwise": whole.replace(b"Host:", b"SEC-WEBSOCKET-KEY: " + b"A" * 22 + b"==\r\nHost:"),
    "a sign that is not visible": whole.replace(b"Host: l", b"Host: \0"),
    "a letter that is not ASCII": whole.replace(b"Host: l", b"Host: \xe9"),
    "a body": request(PLAIN | {"Content-Length": "5"}),
    "a body of no length": request(PLAIN | {"Transfer-Encoding": "chunked"}),
    "a question first": request(PLAIN | {"Expect": "100-continue"}),
    "another upgrade": request(PLAIN | {"Upgrade": "h2c"}),
    "one of two upgrades": request(PLAIN | {"Upgrade": "h2c, websocket"}),
    "no connection": request(PLAIN | {"Connection": "keep-alive"}),
    "another version of WebSocket": request(PLAIN | {"Sec-WebSocket-Version": "8"}),
    "a key that is too short": request(PLAIN | {"Sec-WebSocket-Key": "c2hvcnQ="}),
    "a key that is too long": request(PLAIN | {"Sec-WebSocket-Key": KEY + KEY}),
    "a key that is no base64": request(PLAIN | {"Sec-WebSocket-Key": "-" * 22 + "=="}),
    "no key": request({name: value for name, value in PLAIN.items() if name != "Sec-WebSocket-Key"}),
    "no host": request({name: value for name, value in PLAIN.items() if name != "Host"}),
    "a host that is not valid": request(PLAIN | {"Host": "a,b"}),
}


@pytest.mark.parametrize("data", OTHERS.values(), ids=OTHERS.keys())
def test_anything_else_is_left_to_the_parser_that_knows_http(data: bytes) -> None:
    assert plain_upgrade(data) is None


# --- tokens that come with the request ---


@pytest.mark.parametrize(
    ("name", "value", "token", "by_name"),
    [
        ("Authorization", "Bearer abc.def.ghi", "abc.def.ghi", False),
        ("authorization", "bearer   abc", "abc", False),
        ("Authorization", "Basic abc", "", False),
        ("Authorization", "Bearer", "", False),
        ("Authorization", "abc.def.ghi", "", False),
        ("Sec-WebSocket-Protocol", "greendot.v1, bearer.abc.def.ghi", "abc.def.ghi", True),
        ("Sec-WebSocket-Protocol", "bearer.abc,greendot.v1", "abc", True),
        ("Sec-WebSocket-Protocol", "greendot.v1", "", True),
        ("Sec-WebSocket-Protocol", "bearer.abc", "abc", False),
        ("Sec-WebSocket-Protocol", "greendot.v2, Bearer.abc", "", False),
    ],
)
def test_a_token_comes_in_a_header_or_as_a_subprotocol(name: str, value: str, token: str, by_name: bool) -> None:
    found = plain_upgrade(request(PLAIN | {name: value}))
    assert found is not None
    assert (found.key, found.asked) == (KEY.encode(), HandshakeFields(None, token, by_name))
    assert handshake_fields({name.lower().encode(): value.encode()}) == found.asked


def test_the_header_goes_before_the_subprotocol_and_that_before_the_query() -> None:
    headers = {b"authorization": b"Bearer one", b"sec-websocket-protocol": b"greendot.v1, bearer.two"}
    assert handshake_fields(headers, b"token=three").token == "one"
    del headers[b"authorization"]
    assert handshake_fields(headers, b"token=three").token == "two"
    assert handshake_fields({}, b"token=three").token == "three"


def test_a_query_has_a_token_only_where_it_may() -> None:
    data = request(PLAIN, "GET /v1/connect?x=1&token=abc.def HTTP/1.1")
    off, on = plain_upgrade(data), plain_upgrade(data, token_in_query=True)
    assert off is not None
    assert on is not None
    assert (off.asked.token, on.asked.token) == ("", "abc.def")


@pytest.mark.parametrize("query", ["", "token", "token=", "&&&", "token=%ff", "a=1;token=2", "=".join(["t"] * 500)])
def test_a_strange_query_is_no_trouble(query: str) -> None:
    data = request(PLAIN, f"GET /v1/connect?{query} HTTP/1.1")
    assert plain_upgrade(data, token_in_query=True) is not None


# --- heads that were read before ---

OTHER_KEY = "AAAAAAAAAAAAAAAAAAAAAA=="


@pytest.mark.parametrize("headers", [PLAIN, CHROME, FIREFOX], ids=["plain", "Chrome", "Firefox"])
def test_a_head_that_was_read_before_gives_the_same_with_its_own_key(headers: dict[str, str]) -> None:
    known = KnownHandshakes(token_in_query=False)
    first = known.read(request(headers))
    again = known.read(request(headers | {"Sec-WebSocket-Key": OTHER_KEY}))
    assert first == plain_upgrade(request(headers))
    assert again is not None
    assert first is not None
    assert again.key == OTHER_KEY.encode()
    assert again.headers is first.headers  # it was not parsed a second time


@pytest.mark.parametrize("key", ["", "short", "A" * 24, "AAAAAAAAAAAAAAAAAAAAA\n==", KEY + "=", " " + KEY, KEY[:-1]])
def test_a_wrong_key_is_wrong_in_a_known_head_too(key: str) -> None:
    known = KnownHandshakes(token_in_query=False)
    assert known.read(request(PLAIN)) is not None
    data = request(PLAIN | {"Sec-WebSocket-Key": key})
    assert known.read(data) == plain_upgrade(data)


@pytest.mark.parametrize("data", OTHERS.values(), ids=OTHERS.keys())
def test_what_is_left_to_the_other_parser_is_so_each_time(data: bytes) -> None:
    known = KnownHandshakes(token_in_query=False)
    assert known.read(request(PLAIN)) is not None
    assert (known.read(data), known.read(data)) == (None, None)


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("GET /v1/connect?token=secret HTTP/1.1", {}),
        ("GET /v1/connect HTTP/1.1", {"Authorization": "Bearer secret"}),
        ("GET /v1/connect HTTP/1.1", {"Sec-WebSocket-Protocol": "greendot.v1, bearer.secret"}),
        ("GET /v1/connect HTTP/1.1", {"Cookie": "secret"}),
        ("GET /v1/connect HTTP/1.1", {"X-Anything": "secret"}),
    ],
)
@pytest.mark.parametrize("token_in_query", [True, False])
def test_a_head_that_may_contain_a_secret_is_not_kept(line: str, more: dict[str, str], token_in_query: bool) -> None:
    known = KnownHandshakes(token_in_query=token_in_query)
    found = known.read(request(PLAIN | more, line))
    assert found == plain_upgrade(request(PLAIN | more, line), token_in_query=token_in_query)
    assert found is not None
    assert "secret" not in repr(known._known)


def test_few_heads_are_kept() -> None:
    known = KnownHandshakes(token_in_query=False)
    for number in range(1_000):
        assert known.read(request(PLAIN | {"User-Agent": f"agent {number}"})) is not None
    assert 0 < len(known._known) <= 64
