"""Client address, origin and host of a socket: pure checks.

The client is the peer of the socket, or the address that a trusted proxy names. Any client can write a header, so only
entries written by trusted proxies are believed. Read from the right, each entry names the sender that a proxy saw. The
first entry that is no trusted proxy is the client.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal, NamedTuple

RESERVE = 512  # file descriptors that clients do not get
REMEMBERED = 1_024  # addresses in the cache of trusted proxies
Header = Literal["x-forwarded-for", "forwarded"]
_SUBNET = ip_network("::/64").netmask  # one customer's share of IPv6: a limit per single address would have no effect
_FOR = re.compile(rb'(?:^|;)\s*for\s*=\s*"?([^;"\s]*)', re.IGNORECASE)
_PROTO = re.compile(rb'(?:^|;)\s*proto\s*=\s*"?([a-z]*)', re.IGNORECASE)
_PORT = re.compile(r"(\[.*\]|[^:]*):\d+")


class DescriptorLimits(NamedTuple):
    """Numbers of file descriptors in use from which a process accepts no further sockets of some kind."""

    clients: int  # no further clients; HTTP requests, such as probes, are still answered
    sockets: int  # no further sockets; the rest is for connections to Redis, PostgreSQL, webhooks and push services


def descriptor_limits(files: int) -> DescriptorLimits:
    """Return the limits of a process that may open so many files."""
    reserve = min(RESERVE, files // 4)
    return DescriptorLimits(files - reserve, files - reserve // 2)


class Proxies:
    """Trusted proxies. `header` is the header that they write.

    Only this header is read. Any other header may come from the client, passed on unchanged.
    """

    def __init__(self, trusted: Collection[str], header: Header = "x-forwarded-for") -> None:
        self._networks = [ip_network(network) for network in trusted]
        self.are_any = bool(self._networks)
        self._header = header.encode()
        self._known = lru_cache(REMEMBERED)(self._look_up)  # proxies are few, and open many sockets

    def trusts(self, peer: str) -> bool:
        return self.are_any and self._known(peer)

    def _look_up(self, peer: str) -> bool:
        address = _read(peer)
        return address is not None and any(address in network for network in self._networks)

    def client(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """Return the address of the client behind a trusted peer."""
        client = peer
        for hop in reversed(headers.get(self._header, b"").split(b",")):
            address = _read(self._named(hop))
            if address is None:
                break  # the proxy that wrote this entry is the last known address
            client = str(address)
            if not self.trusts(client):
                break
        return client

    def is_secure(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a trusted peer states that its client uses TLS."""
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
    """Return the name under which an address is limited: an IPv4 address, or an IPv6 /64 subnet."""
    if ":" not in address:  # IPv4 as the kernel or `_read` writes it
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
    # A dual-stack socket shows IPv4 addresses in their IPv6-mapped form.
    return getattr(address, "ipv4_mapped", None) or address


class AddressGroup:
    """Address or subnet that has sockets."""

    __slots__ = ("count", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0


class AddressLimits:
    """Address groups that have at least one socket.

    With `most` 0, sockets are counted without a limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: dict[str, AddressGroup] = {}

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, name: str) -> AddressGroup:
        """Count a socket, also above the limit. Each call needs a `leave`."""
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
        """Return whether the group has more than twice the limit: its sockets are closed without an answer."""
        return 0 < 2 * self._most < group.count


ANY = "*"
_DEFAULT_PORTS = {b"https://": b":443", b"http://": b":80"}


class Origins:
    """Origins that may connect.

    Without a list, only pages of the host that the socket connects to are allowed. Clients that are no browsers send no
    origin, and are allowed.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        self._any = ANY in allowed
        self._allowed = frozenset(origin.encode() for origin in allowed)

    def allows(self, origin: bytes | None, host: bytes, *, secure: bool) -> bool:
        """Return whether a page of `origin` may connect to `host`.

        `secure` means the client is known to use TLS. A page without TLS is then treated as a page of another host.
        """
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
    """Host names that requests may use, as in a URL.

    A name without a port allows every port. Without a list, every name is allowed.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        self.allow_any = not allowed or ANY in allowed
        self._allowed = frozenset(name.encode() for name in allowed)

    def allows(self, host: bytes) -> bool:
        if self.allow_any:
            return True
        host = host.lower()
        name, colon, port = host.rpartition(b":")
        return host in self._allowed or bool(colon and port.isdigit() and name in self._allowed)
