from __future__ import annotations

import pytest

from greendot.transport.ingress_model import Hosts, Origins

HOSTILE = [
    b"null",
    b"",
    b"https://good.com.evil.com",
    b"https://evilgood.com",
    b"https://evil-good.com",
    b"https://sub.good.com",
    b"http://good.com",
    b"https://good.com:443",
    b"https://good.com:8443",
    b"https://good.com:80",
    b"https://good.com/",
    b"https://good.com/path",
    b"https://good.com.",
    b"https://good.com@evil.com",
    b"https://good.com:pass@evil.com",
    b"https://evil.com#https://good.com",
    b"https://evil.com?https://good.com",
    b"https://good.com https://evil.com",
    b"https://evil.com, https://good.com",
    b"https://good.com, https://good.com",
    b"HTTPS://good.com",
    b"https://GOOD.com",
    b"https:good.com",
    b"//good.com",
    b"good.com",
    b"https://good.com\0",
    b"https://good\xd0\xbe.com",
    b"https://xn--god-x1a.com",
    b"file://",
    b"*",
    b"chrome-extension://good.com",
    b"https://g00d.com",
    b"https://good.com" + b"a" * 10_000,
]


@pytest.mark.parametrize("origin", HOSTILE)
def test_only_exactly_what_is_listed_is_let_in(origin: bytes) -> None:
    origins = Origins(["https://good.com", "https://app.example.com:8443"])
    for secure in (False, True):
        assert not origins.allows(origin, b"good.com", secure=secure)
        assert origins.allows(b"https://good.com", b"elsewhere.com", secure=secure)
        assert origins.allows(b"https://app.example.com:8443", b"elsewhere.com", secure=secure)


@pytest.mark.parametrize("origin", [origin for origin in HOSTILE if origin != b"http://good.com"])
def test_without_a_list_only_the_host_itself_is_let_in(origin: bytes) -> None:
    assert not Origins([]).allows(origin, b"good.com", secure=False)


def test_without_a_list_a_page_from_the_same_host_may_connect() -> None:
    origins = Origins([])
    assert origins.allows(b"https://good.com", b"good.com", secure=True)
    assert origins.allows(b"https://good.com", b"GOOD.com:443", secure=True)
    assert origins.allows(b"https://good.com:8443", b"good.com:8443", secure=True)
    assert origins.allows(b"http://[::1]:8000", b"[::1]:8000", secure=False)
    assert not origins.allows(b"https://good.com", b"good.com:8443", secure=True)
    assert not origins.allows(b"https://", b"", secure=False)


def test_a_page_that_did_not_come_by_tls_is_another_s_where_the_client_is_known_to_have_come_so() -> None:
    assert Origins([]).allows(b"http://good.com", b"good.com", secure=False)
    assert not Origins([]).allows(b"http://good.com", b"good.com", secure=True)
    # The case: a proxy that is not in the settings.
    assert Origins([]).allows(b"https://good.com", b"good.com", secure=False)


def test_a_request_without_an_origin_is_allowed() -> None:
    for listed in ([], ["https://good.com"], ["*"]):
        assert Origins(listed).allows(None, b"good.com", secure=False)


def test_any_page_at_all_has_to_be_asked_for() -> None:
    assert Origins(["*"]).allows(b"null", b"good.com", secure=False)


@pytest.mark.parametrize(
    "host",
    [b"", b"evil.com", b"good.com.evil.com", b"good.com:80:80", b"good.com:x", b"good.com, good.com", b"good.com/",
     b"good.com@evil.com", b"[::1]", b":80", b"other.com:8444", b"other.com"],
)  # fmt: skip
def test_other_names_are_not_ours(host: bytes) -> None:
    assert not Hosts(["good.com", "other.com:8443"]).allows(host)
    assert Hosts([]).allows(host)
    assert Hosts(["*"]).allows(host)


@pytest.mark.parametrize(
    "host", [b"good.com", b"GOOD.com", b"good.com:80", b"good.com:8443", b"other.com:8443", b"[::1]:80"]
)
def test_a_name_without_a_port_holds_for_every_port(host: bytes) -> None:
    assert Hosts(["good.com", "other.com:8443", "[::1]"]).allows(host)
