"""Head of an HTTP/1 request, checked by RFC 9110 and RFC 9112.

httptools splits the bytes. This module checks what httptools accepts: the request target, the host, the version and the
transfer coding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

Field = tuple[bytes, bytes]

HOST = re.compile(rb"(?:[A-Za-z0-9._~%!$&'()*+;=-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
_PATH, _QUERY = rb"/[!\"$->@-~]*", rb"[!\"$-~]*"  # visible ASCII; a fragment is not part of a target
_ORIGIN_FORM = re.compile(rb"(%b)(?:\?(%b))?" % (_PATH, _QUERY))
_ABSOLUTE_FORM = re.compile(rb"(?i:https?)://([^/?#]+)(%b)?(?:\?(%b))?" % (_PATH, _QUERY))


class Refusal(NamedTuple):
    """Response that ends the connection. It does not reveal what would have been allowed."""

    status: bytes
    word: bytes = b""
    retry_s: int | None = None
    headers: bytes = b""  # whole lines
    counter: str = ""  # the metric to add to, if the refusing code does not count by itself


MALFORMED = "realtime_refused_malformed_total"
BAD_REQUEST = Refusal(b"400 Bad Request", counter=MALFORMED)
BAD_TARGET = Refusal(b"400 Bad Request", b"invalid request target\n", counter=MALFORMED)
BAD_HOST = Refusal(b"400 Bad Request", b"exactly one valid Host header is required\n", counter=MALFORMED)
BAD_CODING = Refusal(b"501 Not Implemented", b"unsupported transfer coding; use chunked\n", counter=MALFORMED)
BAD_VERSION = Refusal(b"505 HTTP Version Not Supported", counter=MALFORMED)
NO_TUNNEL = Refusal(
    b"501 Not Implemented", b"CONNECT is not supported; this server is not a proxy\n", counter=MALFORMED
)


class RequestRefused(Exception):
    """Request that is answered with a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.status.decode())
        self.refusal = refusal


class Head(NamedTuple):
    """Request line and header fields."""

    method: bytes
    version: str
    path: bytes  # still percent-encoded
    query: bytes
    fields: list[Field]  # names in lower case
    by_name: Mapping[bytes, bytes]

    @property
    def has_body(self) -> bool:
        return b"transfer-encoding" in self.by_name or self.by_name.get(b"content-length", b"0").strip(b"0") != b""


def read_head(method: bytes, version: str, target: bytes, fields: list[Field]) -> Head:
    """Return the checked head. Raise RequestRefused if the server may not answer the request."""
    if version not in ("1.1", "1.0"):
        raise RequestRefused(BAD_VERSION)
    if method == b"CONNECT":
        raise RequestRefused(NO_TUNNEL)
    by_name = joined(fields)
    host = by_name.get(b"host")
    if (host is None and version == "1.1") or (host is not None and HOST.fullmatch(host) is None):
        raise RequestRefused(BAD_HOST)  # a repeated Host is joined to a list, which is not valid either
    authority, path, query = _split(method, target)
    if authority is not None:
        # RFC 9112, 3.2.2: the Host field is ignored and replaced.
        fields = [(b"host", authority), *(field for field in fields if field[0] != b"host")]
        by_name[b"host"] = authority
    coding = by_name.get(b"transfer-encoding")
    if coding is not None and version == "1.0":
        raise RequestRefused(BAD_REQUEST)
    if coding is not None and coding.lower() != b"chunked":
        raise RequestRefused(BAD_CODING)
    return Head(method, version, path, query, fields, by_name)


def _split(method: bytes, target: bytes) -> tuple[bytes | None, bytes, bytes]:
    """Return the authority (None in origin form), the path and the query of a request target."""
    if (origin := _ORIGIN_FORM.fullmatch(target)) is not None:
        return None, origin[1], origin[2] or b""
    if (absolute := _ABSOLUTE_FORM.fullmatch(target)) is not None and HOST.fullmatch(absolute[1]) is not None:
        return absolute[1], absolute[2] or b"/", absolute[3] or b""
    if target == b"*" and method == b"OPTIONS":
        return None, target, b""
    raise RequestRefused(BAD_TARGET)


def joined(fields: Iterable[Field]) -> dict[bytes, bytes]:
    """Return header fields by name. A repeated field becomes a list, which equals no valid host or origin."""
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        value = value.strip(b" \t")
        found[name] = b"%b, %b" % (found[name], value) if name in found else value
    return found


def tokens(value: bytes) -> list[bytes]:
    """Return the items of a list-valued field such as Connection, in lower case."""
    return [item.strip(b" \t") for item in value.lower().split(b",")]
