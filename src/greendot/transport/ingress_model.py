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


def household(address: str) -> str:
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
