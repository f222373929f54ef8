"""Settings of the ingress policy (`[door]`) and of TLS, and their checks."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Annotated, Literal

from msgspec import Meta, Struct

from greendot.config.fields import Mistakes, Rate, about

ANY = "*"
_NAME = r"(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])"
_HOST = re.compile(rf"{_NAME}(?::\d{{1,5}})?")
_ORIGIN = re.compile(rf"([a-z][a-z0-9+.-]*)://{_NAME}(:\d{{1,5}})?")
_LEFT_OUT = {("http", ":80"), ("https", ":443")}


class IngressSection(Struct, frozen=True, forbid_unknown_fields=True):
    """Ingress policy: rules for sockets before a token is read."""

    origins: Annotated[
        tuple[str, ...], about("exact origins of pages that may connect; empty: pages of the same host; `*`: any")
    ] = ()
    hosts: Annotated[tuple[str, ...], about("host names that this server answers to; empty: any")] = ()
    trusted_proxies: Annotated[
        tuple[str, ...], about("networks of proxies whose header with the client's address is trusted")
    ] = ()
    proxy_header: Annotated[
        Literal["x-forwarded-for", "forwarded"], about("header in which trusted proxies send the client's address")
    ] = "x-forwarded-for"
    connections_per_ip: Annotated[Rate, about("sockets per client address, IPv6 by /64; 0: no limit")] = 10_000


class Tls(Struct, frozen=True, forbid_unknown_fields=True):
    """TLS without a proxy. The files are read again on SIGHUP."""

    cert: Annotated[str, about("file with the certificate chain in PEM; empty: no TLS")] = ""
    key: Annotated[str, about("file with the private key in PEM; empty: the file of cert")] = ""
    hsts_s: Annotated[int, Meta(ge=0, le=315_360_000), about("max-age of Strict-Transport-Security; 0: not sent")] = (
        31_536_000
    )


def check_door(door: IngressSection, tls: Tls) -> Mistakes:
    """Yield the mistakes in `[door]` and `[tls]`."""
    if tls.key and not tls.cert:
        yield "tls.key is set but tls.cert is not, so there would be no TLS. Set both."
    for origin in door.origins:
        found = _ORIGIN.fullmatch(origin)
        if origin != ANY and (found is None or (found[1], found[2]) in _LEFT_OUT):
            yield (
                f"door.origins contains {origin!r}. Write origins as browsers send them: https://app.example.com, in "
                "lower case, with the port unless it is the default, without a path or a slash at the end."
            )
    for host in door.hosts:
        if host != ANY and _HOST.fullmatch(host) is None:
            yield (
                f"door.hosts contains {host!r}. Write host names as in a URL, in lower case: chat.example.com, or "
                "chat.example.com:8443 for one port only."
            )
    for network in door.trusted_proxies:
        if not is_network(network):
            yield (
                f"door.trusted_proxies contains {network!r}. "
                "Write IP addresses or networks, such as 10.0.0.7 or 10.0.0.0/8."
            )


def is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True
