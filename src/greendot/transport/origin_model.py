"""Which pages may open a WebSocket here, and under which names we are spoken to.

A browser says in `Origin` whose page it runs; a page cannot change it. Names are compared as they are written, whole:
no patterns, no prefixes, no parsing that an odd name could lead astray.
"""

from __future__ import annotations

from collections.abc import Collection

ANY = "*"
_DEFAULT_PORTS = {b"https://": b":443", b"http://": b":80"}


class Origins:
    """Without a list, only pages that come from the host the socket goes to. Who is no browser says no origin."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._any = ANY in allowed
        self._allowed = frozenset(origin.encode() for origin in allowed)

    def allows(self, origin: bytes | None, host: bytes, *, secure: bool) -> bool:
        """`secure` if the client is known to have come by TLS: then a page that did not is another's."""
        if origin is None or self._any:
            return True
        if self._allowed:
            return origin in self._allowed
        return any(
            origin == scheme + host.lower().removesuffix(port)
            for scheme, port in _DEFAULT_PORTS.items()
            if host and (scheme == b"https://" or not secure)
        )


class Hosts:
    """Names as they stand in a URL; one without a port holds for every port. Without a list, any name will do."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._any = not allowed or ANY in allowed
        self._allowed = frozenset(name.encode() for name in allowed)

    def allows(self, host: bytes) -> bool:
        if self._any:
            return True
        host = host.lower()
        name, colon, port = host.rpartition(b":")
        return host in self._allowed or bool(colon and port.isdigit() and name in self._allowed)
