"""Opening handshake of a WebSocket (RFC 6455, section 4.2.1).

`plain_upgrade` recognises the request that nearly every client sends, without a general HTTP parser. Any other request,
unusual, incomplete or wrong, goes to the HTTP parser, and then to `check_handshake`.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterable, Mapping
from hashlib import sha1
from typing import NamedTuple
from urllib.parse import parse_qs

from msgspec import Struct

from greendot.transport.request_head import HOST, MALFORMED, Head, Refusal, tokens

PATH = b"/v1/connect"
LIVE = b"/admin/live"  # for the dashboard, where it is on
SUBPROTOCOL = b"greendot.v1"
_BEARER = b"bearer."

# One complete head and nothing behind it: visible characters, no continued lines, no unusual header names.
_HEAD = rb"GET (%b)(?:\?[!-\"$-~]*)? HTTP/1\.1\r\n(?:[A-Za-z0-9-]+:[ -~]*\r\n)+\r\n"
_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")  # 16 bytes
_VERSION = b"sec-websocket-version: 13\r\n"
NO_BODY = Refusal(b"400 Bad Request", b"a WebSocket handshake must not have a body\n", counter=MALFORMED)
BAD_KEY = Refusal(
    b"400 Bad Request", b"exactly one Sec-WebSocket-Key header of 16 bytes is required\n", counter=MALFORMED
)
NO_VERSION = Refusal(
    b"400 Bad Request", b"exactly one Sec-WebSocket-Version header is required\n", headers=_VERSION, counter=MALFORMED
)
WRONG_VERSION = Refusal(
    b"426 Upgrade Required",
    b"unsupported WebSocket version; use version 13\n",
    headers=b"upgrade: websocket\r\nconnection: upgrade, close\r\n" + _VERSION,
    counter=MALFORMED,
)
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\n%bConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: %b\r\n\r\n"
)
_NAMED = b"Sec-WebSocket-Protocol: %b\r\n" % SUBPROTOCOL
_KEY_FIELD, _KEY_BYTES = b"\r\nSec-WebSocket-Key: ", 24
_MOST_KNOWN = 64  # handshakes; then all are forgotten
_PUBLIC = frozenset(  # headers that contain no secrets, and are alike for all clients of a kind
    b"host upgrade connection user-agent origin accept accept-encoding accept-language cache-control pragma"
    b" sec-websocket-key sec-websocket-version sec-websocket-protocol sec-websocket-extensions"
    b" sec-fetch-dest sec-fetch-mode sec-fetch-site".split()
)
_BODY = (b"content-length", b"transfer-encoding", b"expect")  # a plain request has none of these


class HandshakeFields(NamedTuple):
    """Other fields of a WebSocket request."""

    agent: str | None
    token: str = ""
    by_name: bool = False  # the client asks for the subprotocol and expects it in the response


class Upgrade(Struct, frozen=True):
    """Plain WebSocket request."""

    key: bytes
    asked: HandshakeFields
    headers: Mapping[bytes, bytes]  # names in lower case
    path: bytes = PATH
    query: bytes = b""  # read for foreign protocols only


def _plain_head(others: Iterable[bytes]) -> re.Pattern[bytes]:
    """Return the pattern of a plain request for the clients' path or one of `others`.

    A path that ends with a slash stands for the paths below it.
    """
    below = [re.escape(path) + (rb"[A-Za-z0-9._~-]+" if path.endswith(b"/") else b"") for path in others]
    return re.compile(_HEAD % b"|".join([re.escape(PATH), *below]))


_OWN_HEAD = _plain_head(())


def handshake_fields(headers: Mapping[bytes, bytes], query: bytes = b"") -> HandshakeFields:
    """Return the fields of a handshake from headers with lower-case names.

    `query` is empty where tokens are not taken from the query.
    """
    agent = headers.get(b"user-agent")
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer":
        token = b""
    named = [name.strip() for name in headers.get(b"sec-websocket-protocol", b"").split(b",")]
    if not token:
        # The only place where a page can put a token: new WebSocket(url, ["greendot.v1", "bearer." + token]).
        token = next((name[len(_BEARER) :] for name in named if name.startswith(_BEARER)), b"")
    offered = _text(token).strip()
    if not offered and query:
        offered = parse_qs(query.decode("latin-1")).get("token", [""])[0]
    return HandshakeFields(_text(agent) if agent else None, offered, SUBPROTOCOL in named)


def _text(value: bytes) -> str:
    return value.decode(errors="surrogateescape")


class KnownHandshakes:
    """Handshakes that were parsed before. Clients of one kind send the same head, and only its key differs.

    A head is kept only if it has no token and no header that may contain a secret. `others` are the paths of foreign
    protocols, whose queries are public.
    """

    def __init__(self, *, token_in_query: bool, others: Iterable[bytes] = ()) -> None:
        self._token_in_query = token_in_query
        self._head = _plain_head(others) if others else _OWN_HEAD
        self._known: dict[tuple[bytes, bytes], Upgrade] = {}  # by the parts of the head before and behind the key

    def read(self, data: bytes) -> Upgrade | None:
        """Return what `plain_upgrade` returns."""
        before, _, rest = data.partition(_KEY_FIELD)
        around, key = (before, rest[_KEY_BYTES:]), rest[:_KEY_BYTES]
        known = self._known.get(around)
        if known is not None and _KEY.fullmatch(key) is not None:
            return Upgrade(key, known.asked, known.headers, known.path, known.query)
        upgrade = plain_upgrade(data, token_in_query=self._token_in_query, head=self._head)
        if upgrade is not None and upgrade.key == key and _is_public(before, upgrade):
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[around] = upgrade
        return upgrade


def _is_public(before: bytes, upgrade: Upgrade) -> bool:
    """Return whether the head of a request contains nothing secret."""
    has_query = b"?" in before and upgrade.path == PATH
    return not upgrade.asked.token and not has_query and upgrade.headers.keys() <= _PUBLIC


def plain_upgrade(data: bytes, *, token_in_query: bool = False, head: re.Pattern[bytes] = _OWN_HEAD) -> Upgrade | None:
    """Return the request if `data` is exactly one request without anything unusual; else None."""
    if (found := head.fullmatch(data)) is None:
        return None
    lines = data[:-4].split(b"\r\n")
    headers: dict[bytes, bytes] = {}
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    if len(headers) != len(lines) - 1:  # a header is repeated
        return None
    if not headers.keys().isdisjoint(_BODY) or headers.get(b"upgrade", b"").lower() != b"websocket":
        return None
    if (host := headers.get(b"host")) is None or HOST.fullmatch(host) is None:
        return None
    # Firefox sends `keep-alive, Upgrade`.
    options = headers.get(b"connection", b"").lower().replace(b" ", b"").split(b",")
    key = headers.get(b"sec-websocket-key", b"")
    if b"upgrade" not in options or headers.get(b"sec-websocket-version") != b"13" or not _KEY.fullmatch(key):
        return None
    path, query = found[1], query_of(lines[0])
    if path != PATH:
        return Upgrade(key, handshake_fields(headers), headers, path, query)
    return Upgrade(key, handshake_fields(headers, query if token_in_query else b""), headers)


def switching_protocols(key: bytes, *, by_name: bool = False, other: bytes = b"") -> bytes:
    """Return the 101 response to a valid handshake.

    `by_name` names the subprotocol in it. `other` is the subprotocol of a foreign protocol.
    """
    accepted = b2a_base64(sha1(key + _GUID, usedforsecurity=False).digest(), newline=False)
    named = _NAMED if by_name else b"Sec-WebSocket-Protocol: %b\r\n" % other if other else b""
    return _SWITCHING % (named, accepted)


def wants_websocket(head: Head) -> bool:
    """Return whether a request with an upgrade asks for a WebSocket. HTTP/1.0 upgrades are ignored (RFC 9110, 7.8)."""
    return head.version == "1.1" and head.method == b"GET" and b"websocket" in tokens(head.by_name.get(b"upgrade", b""))


def check_handshake(head: Head, path: bytes) -> Refusal | None:
    """Return the refusal if the request is not a valid handshake for `path`, or None."""
    if head.has_body:
        return NO_BODY
    if head.path != path:
        return Refusal(b"404 Not Found", b"there is no WebSocket at this path; connect to %b\n" % path)
    version = head.by_name.get(b"sec-websocket-version", b"")
    if not version or b"," in version:
        return NO_VERSION
    if version != b"13":
        return WRONG_VERSION
    if _KEY.fullmatch(head.by_name.get(b"sec-websocket-key", b"")) is None:
        return BAD_KEY
    return None


def query_of(text: bytes) -> bytes:
    """Return the query in a request line."""
    return text.partition(b"?")[2].partition(b" ")[0]
