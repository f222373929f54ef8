"""Where a client really is: the peer of its socket, or whom a trusted proxy names.

Anybody can write a header. What it says is believed as far as it was written by proxies of ours: from the right, each
names whom it was spoken to by, and the first that is none of ours is the client.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal

REMEMBERED = 1_024  # addresses
Header = Literal["x-forwarded-for", "forwarded"]
_SUBNET = ip_network("::/64").netmask  # what one customer has of IPv6: who limits an address of it limits nobody
_FOR = re.compile(rb'(?:^|;)\s*for\s*=\s*"?([^;"\s]*)', re.IGNORECASE)
_PROTO = re.compile(rb'(?:^|;)\s*proto\s*=\s*"?([a-z]*)', re.IGNORECASE)
_PORT = re.compile(r"(\[.*\]|[^:]*):\d+")


class Proxies:
    """`header` is the one they write. Only one is read: a client's own might pass through them in the other."""

    def __init__(self, trusted: Collection[str], header: Header = "x-forwarded-for") -> None:
        self._networks = [ip_network(network) for network in trusted]
        self._header = header.encode()
        self._known = lru_cache(REMEMBERED)(self._look_up)  # proxies are few, and open many sockets

    def trusts(self, peer: str) -> bool:
        return bool(self._networks) and self._known(peer)

    def _look_up(self, peer: str) -> bool:
        address = _read(peer)
        return address is not None and any(address in network for network in self._networks)

    def client(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """The client of a peer that is trusted."""
        client = peer
        for hop in reversed(headers.get(self._header, b"").split(b",")):
            address = _read(self._named(hop))
            if address is None:
                break  # whoever wrote this is the last we know of
            client = str(address)
            if not self.trusts(client):
                break
        return client

    def is_secure(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a trusted peer says that its client came by TLS."""
        if self._header == b"forwarded":
            found = _PROTO.search(headers.get(b"forwarded", b"").rpartition(b",")[2])
            return found is not None and found[1].lower() == b"https"
        return headers.get(b"x-forwarded-proto", b"").rpartition(b",")[2].strip().lower() == b"https"

    def _named(self, hop: bytes) -> str:
        if self._header == b"forwarded":
            found = _FOR.search(hop)
            hop = found[1] if found else b""
        return hop.strip().decode(errors="replace")


def address_group(address: str) -> str:
    """What is limited as one: an IPv4 address, a subnet of IPv6."""
    if ":" not in address:  # as the kernel writes it, or we did
        return address
    read = _read(address)
    if isinstance(read, IPv6Address):
        return str(IPv6Address(int(read) & int(_SUBNET)))
    return str(read or address)


def _read(text: str) -> IPv4Address | IPv6Address | None:
    if found := _PORT.fullmatch(text):
        text = found[1]
    try:
        address = ip_address(text.removeprefix("[").removesuffix("]").partition("%")[0])
    except ValueError:
        return None
    # A socket for both kinds shows IPv4 in the clothes of IPv6.
    return getattr(address, "ipv4_mapped", None) or address


class AddressGroup:
    """One address, or one subnet, while somebody is there."""

    __slots__ = ("count", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0


class AddressLimits:
    """Those with sockets, and no others: there are never more of them than sockets. `most` 0 counts without a bound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: dict[str, AddressGroup] = {}

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, name: str) -> AddressGroup:
        """One more is counted, also where it is one too many: each must `leave`."""
        found = self._all.get(name)
        if found is None:
            found = self._all[name] = AddressGroup(name)
        found.count += 1
        return found

    def leave(self, group: AddressGroup) -> None:
        group.count -= 1
        if not group.count:
            del self._all[group.name]

    def is_full(self, group: AddressGroup) -> bool:
        return 0 < self._most < group.count

    def is_overrun(self, group: AddressGroup) -> bool:
        """So many that they are not even told."""
        return 0 < 2 * self._most < group.count


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
