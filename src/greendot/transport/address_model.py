"""Addresses that outbound calls may reach when an app or user chose the host name.

Such a name may lead to the machine itself, to its neighbours or to the cloud's metadata service. Only addresses of the
public internet are called, and addresses in networks that the operator lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

ANY = "all"  # stands for all private networks
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
# Python's own list differs between versions; the most important networks do not depend on it.
_NEVER_PUBLIC = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, and the metadata services of clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "240.0.0.0/4",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
    )
]


def networks(texts: Sequence[str]) -> list[Network]:
    """Parse the networks that the operator listed. ValueError names a text that is no network."""
    if ANY in texts:
        return [ip_network("0.0.0.0/0"), ip_network("::/0")]
    return [ip_network(text) for text in texts]


def reached(text: str) -> Address:
    """Return the address that a packet to `text` reaches: IPv6 has several ways to write an IPv4 address."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address.teredo is not None:
            return address.teredo[1]
        if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(text: str) -> bool:
    """Return whether the address belongs to the public internet, however it is written."""
    address = reached(text)
    if address.is_multicast or not address.is_global:
        return False
    return not any(address in network for network in _NEVER_PUBLIC)


def is_allowed(text: str, allowed: Sequence[Network]) -> bool:
    """Return whether the operator listed the address. Multicast and unspecified addresses are never allowed."""
    address = reached(text)
    if address.is_multicast or address.is_unspecified:
        return False
    return any(address in network for network in allowed)
