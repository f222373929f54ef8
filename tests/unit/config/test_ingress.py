from __future__ import annotations

import pytest

from greendot.config import load
from greendot.errors import ConfigError


def complaint(**door: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(None, {}, {"door": door})
    return str(caught.value)


@pytest.mark.parametrize(
    "origin",
    ["app.example.com", "https://app.example.com/", "https://App.example.com", "https://example.com:443", "null", "",
     "http://example.com:80", "https://*.example.com", "https://a.example.com/path", "https://user@example.com"],
)  # fmt: skip
def test_an_origin_no_browser_would_send_is_refused(origin: str) -> None:
    assert "Write origins as browsers send them: https://app.example.com" in complaint(origins=[origin])


@pytest.mark.parametrize("host", ["https://example.com", "Example.com", "*.example.com", "example.com:x", "", "::1"])
def test_a_host_is_written_as_in_a_url(host: str) -> None:
    assert "Write host names as in a URL" in complaint(hosts=[host])


@pytest.mark.parametrize("network", ["10.0.0.1/8", "proxy", "*", "", "10.0.0.0/33"])
def test_a_proxy_is_an_address_or_a_network(network: str) -> None:
    assert "Write IP addresses or networks" in complaint(trusted_proxies=[network])


def test_lists_come_from_the_environment_too() -> None:
    door = load(
        None,
        {
            "GREENDOT_DOOR_ORIGINS": "https://app.example.com, http://localhost:5173,*",
            "GREENDOT_DOOR_HOSTS": "chat.example.com,[::1]:8000",
            "GREENDOT_DOOR_TRUSTED_PROXIES": "10.0.0.0/8,fd00::/8,127.0.0.1",
            "GREENDOT_DOOR_PROXY_HEADER": "forwarded",
            "GREENDOT_DOOR_CONNECTIONS_PER_IP": "0",
        },
        {},
    ).door
    assert door.origins == ("https://app.example.com", "http://localhost:5173", "*")
    assert door.hosts == ("chat.example.com", "[::1]:8000")
    assert door.trusted_proxies == ("10.0.0.0/8", "fd00::/8", "127.0.0.1")
    assert (door.proxy_header, door.connections_per_ip) == ("forwarded", 0)


def test_a_key_without_a_certificate_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"tls\.key is set but tls\.cert is not"):
        load(None, {"GREENDOT_TLS_KEY": "server.key"}, {})
