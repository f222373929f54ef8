"""The request for a WebSocket as practically every client makes it, read without a general HTTP parser.

What is recognised here is accepted in any case. Everything else, be it unusual, incomplete or wrong, is left to the
parser that knows HTTP, and to its answers.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PATH = b"/v1/connect"

# One complete head and nothing behind it: visible characters, no lines that are continued, no names with odd signs.
_HEAD = re.compile(rb"GET %b(?:\?[!-\"$-~]*)? HTTP/1\.1\r\n(?:[A-Za-z0-9-]+:[ -~]*\r\n)+\r\n" % PATH)
_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")  # 16 bytes
_BODY = (b"content-length", b"transfer-encoding", b"expect")  # a request that has one of these is not a plain one


class Upgrade(NamedTuple):
    """What is asked for."""

    key: bytes
    agent: str | None


def plain_upgrade(data: bytes) -> Upgrade | None:
    """The request, if `data` is exactly one and there is nothing unusual in it."""
    if _HEAD.fullmatch(data) is None:
        return None
    lines = data[:-4].split(b"\r\n")
    headers: dict[bytes, bytes] = {}
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    if len(headers) != len(lines) - 1:  # one is there twice
        return None
    if not headers.keys().isdisjoint(_BODY) or headers.get(b"upgrade", b"").lower() != b"websocket":
        return None
    # Firefox asks for `keep-alive, Upgrade`.
    tokens = headers.get(b"connection", b"").lower().replace(b" ", b"").split(b",")
    key = headers.get(b"sec-websocket-key", b"")
    if b"upgrade" not in tokens or headers.get(b"sec-websocket-version") != b"13" or not _KEY.fullmatch(key):
        return None
    agent = headers.get(b"user-agent")
    return Upgrade(key, agent.decode() if agent else None)
