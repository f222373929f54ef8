from __future__ import annotations

import pytest

from greendot.transport.ingress_model import Proxies, address_group, descriptor_limits

NEAR = Proxies(["10.0.0.0/8", "fd00::/8", "127.0.0.1"])


def client(said: str, peer: str = "10.0.0.1") -> str:
    return NEAR.client(peer, {b"x-forwarded-for": said.encode("latin-1")})


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("198.51.100.1, 203.0.113.7", "203.0.113.7"),  # the first was written by the client
        ("127.0.0.1, 203.0.113.7", "203.0.113.7"),  # the client claims a trusted address
        ("203.0.113.7, 10.0.0.9", "203.0.113.7"),
        ("1.2.3.4, 203.0.113.7, 10.2.0.9,10.0.0.8", "203.0.113.7"),
        ("10.0.0.5, 10.0.0.9", "10.0.0.5"),  # a client in the trusted network
        ("203.0.113.7:52100", "203.0.113.7"),
        ("[2001:db8::1]:52100", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("2001:db8::1, fd00::2", "2001:db8::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("", "10.0.0.1"),
        (",,,", "10.0.0.1"),
        ("unknown", "10.0.0.1"),
        ("203.0.113.7, unknown", "10.0.0.1"),
        ("203.0.113.7, rubbish, 10.0.0.9", "10.0.0.9"),
        ("203.0.113.999", "10.0.0.1"),
        ("203.0.113.7\0", "10.0.0.1"),
        ("\xff\xfe", "10.0.0.1"),
        (", ".join(["1.2.3.4"] * 1_000), "1.2.3.4"),
    ],
)
def test_the_client_is_the_first_from_the_right_that_is_none_of_ours(said: str, found: str) -> None:
    assert client(said) == found


def test_only_those_who_are_listed_are_trusted() -> None:
    assert NEAR.trusts("10.200.0.1")
    assert NEAR.trusts("::ffff:10.0.0.1")
    assert NEAR.trusts("fd00::7")
    assert not NEAR.trusts("11.0.0.1")
    assert not NEAR.trusts("2001:db8::1")
    assert not NEAR.trusts("no address")
    assert not Proxies([]).trusts("127.0.0.1")


def test_only_the_header_that_our_proxies_write_is_read() -> None:
    headers = {
        b"x-forwarded-for": b"198.51.100.1",
        b"forwarded": b'for=203.0.113.7;proto=https, For="[2001:db8::1]:80"',
    }
    assert Proxies(["10.0.0.1"]).client("10.0.0.1", headers) == "198.51.100.1"
    assert Proxies(["10.0.0.1"], "forwarded").client("10.0.0.1", headers) == "2001:db8::1"
    ours = Proxies(["10.0.0.1", "2001:db8::/32"], "forwarded")
    assert ours.client("10.0.0.1", headers) == "203.0.113.7"
    assert ours.client("10.0.0.1", {b"forwarded": b"for=_hidden"}) == "10.0.0.1"
    assert ours.client("10.0.0.1", {b"forwarded": b"by=1.2.3.4;proto=https"}) == "10.0.0.1"


def test_whether_a_client_came_by_tls_is_the_nearest_proxy_s_word() -> None:
    assert NEAR.is_secure({b"x-forwarded-proto": b"https"})
    assert NEAR.is_secure({b"x-forwarded-proto": b"http, HTTPS"})
    assert not NEAR.is_secure({b"x-forwarded-proto": b"https, http"})
    assert not NEAR.is_secure({b"forwarded": b"proto=https"})
    assert not NEAR.is_secure({})
    assert Proxies([], "forwarded").is_secure({b"forwarded": b"for=1.2.3.4;proto=https"})
    assert not Proxies([], "forwarded").is_secure({b"forwarded": b"for=1.2.3.4", b"x-forwarded-proto": b"https"})


def test_who_has_a_subnet_of_addresses_is_counted_as_one() -> None:
    assert address_group("2001:db8:1:2:3:4:5:6") == address_group("2001:db8:1:2::") != address_group("2001:db8:1:3::")
    assert address_group("203.0.113.7") == address_group("::ffff:203.0.113.7") != address_group("203.0.113.8")
    assert address_group("fe80::1%eth0") == "fe80::"
    assert address_group("no address") == "no address"


def test_a_process_keeps_descriptors_for_its_own_work() -> None:
    assert descriptor_limits(20_000) == (19_488, 19_744)
    assert descriptor_limits(1_024) == (768, 896)
    assert descriptor_limits(64) == (48, 56)
