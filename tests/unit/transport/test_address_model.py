"""Addresses for outbound calls: only public ones are allowed, in every notation."""

from __future__ import annotations

import pytest

from greendot.transport.address_model import is_allowed, is_public, networks, reached

PUBLIC = [
    "93.184.216.34",
    "1.1.1.1",
    "8.8.8.8",
    "2606:4700::1111",
    "2a00:1450::1",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
]
PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "::10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:c0a8:101::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "100::1",
    "fc00::1",
    "fd12:3456:789a::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_public_internet_are_known(address: str) -> None:
    assert is_public(address)
    assert not is_allowed(address, networks(["10.0.0.0/8"]))


@pytest.mark.parametrize("address", PRIVATE)
def test_all_others_are_not_taken_for_it(address: str) -> None:
    assert not is_public(address)


def test_what_the_operator_lists_is_allowed_and_nothing_beside_it() -> None:
    allowed = networks(["10.1.0.0/16", "fd00::/8"])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1"):
        assert is_allowed(address, allowed)
    for address in ("10.2.0.1", "127.0.0.1", "::1", "169.254.169.254", "fc00::1"):
        assert not is_allowed(address, allowed)


def test_the_network_all_allows_every_address_except_multicast_and_unspecified() -> None:
    everything = networks(["all"])
    assert all(is_allowed(address, everything) for address in ("127.0.0.1", "::1", "10.0.0.1", "169.254.169.254"))
    assert not any(is_allowed(address, everything) for address in ("224.0.0.1", "ff02::1", "0.0.0.0", "::"))


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match="localhost"):
        networks(["localhost"])


@pytest.mark.parametrize(
    ("written", "ends_up_at"),
    [
        ("8.8.8.7", "8.8.8.7"),
        ("::ffff:8.8.8.7", "8.8.8.7"),
        ("2002:808:807::1", "8.8.8.7"),
        ("64:ff9b::808:807", "8.8.8.7"),
        ("::8.8.8.7", "8.8.8.7"),
        ("2001:0:4136:e378:8000:63bf:f7f7:f7f8", "8.8.8.7"),  # Teredo: a server, and the client's address inverted
        ("::", "::"),
        ("::1", "::1"),
        ("::2", "0.0.0.2"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_where_a_packet_ends_up_however_its_address_is_written(written: str, ends_up_at: str) -> None:
    assert str(reached(written)) == ends_up_at
