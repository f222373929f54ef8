"""Ingress policy: checks of a socket before its token is read, by address, origin and host."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics import Metrics
from greendot.transport.ingress_model import (
    AddressGroup,
    AddressLimits,
    DescriptorLimits,
    Hosts,
    Origins,
    Proxies,
    address_group,
)
from greendot.transport.request_head import Refusal

EXHAUSTED_RETRY_S = 5  # Retry-After of a node without free descriptors; up to twice as long, so that clients spread
FULL_RETRY_S = 30  # Retry-After for an address that has too many sockets
LOG_EVERY_S = 60.0  # shortest time between two logs of a refused origin, or of exhausted descriptors
PROBES = (b"/livez", b"/readyz")  # requested by probes that know an address and no host name


class IngressRules(NamedTuple):
    """Rules of the ingress policy, from the settings."""

    origins: Origins
    hosts: Hosts
    proxies: Proxies
    per_address: int  # sockets per address group; 0: no limit
    descriptors: DescriptorLimits


EXHAUSTED = Refusal(b"503 Service Unavailable", b"this server has too many connections; retry later\n")
FULL = Refusal(b"429 Too Many Requests", b"too many connections from this address; retry later\n", FULL_RETRY_S)
WRONG_HOST = Refusal(b"403 Forbidden", b"host not allowed\n")
WRONG_ORIGIN = Refusal(b"403 Forbidden", b"origin not allowed\n")


class PendingSocket:
    """Socket from `accept` by the kernel until it is a WebSocket or closed."""

    __slots__ = ("fd", "group", "is_surplus", "peer")

    def __init__(self, peer: str, counted: AddressGroup | None, *, is_surplus: bool) -> None:
        self.fd = -1  # descriptor of a plain socket; -1 for TLS
        self.peer = peer
        self.group = counted  # None for a trusted proxy: its request names the client
        self.is_surplus = is_surplus  # the descriptors for clients are used up: this socket may not be a client


class IngressPolicy:
    """Rules applied to sockets, and the count of sockets of each address group."""

    def __init__(self, rules: IngressRules, metrics: Metrics, now: Callable[[], float]) -> None:
        self._rules = rules
        self._address_limits = AddressLimits(rules.per_address)
        self._metrics = metrics
        self._now = now
        self._logged_at = self._exhausted_at = float("-inf")  # last logs
        self.depart = self._depart  # one bound method for all sockets saves memory

    @property
    def address_groups(self) -> int:
        return len(self._address_limits)

    def arrive(self, peer: str, descriptor: int) -> PendingSocket | None:
        """Count a new socket; return None if it is to be closed without an answer.

        The kernel gives a socket the lowest free descriptor. So its number shows how many are in use.
        """
        limits = self._rules.descriptors
        if descriptor >= limits.sockets:
            self._exhausted()
            return None
        is_surplus = descriptor >= limits.clients
        if self._rules.proxies.are_any and self._rules.proxies.trusts(peer):
            return PendingSocket(peer, None, is_surplus=is_surplus)
        counted = self._address_limits.enter(address_group(peer))
        if self._address_limits.is_overrun(counted):
            self._address_limits.leave(counted)
            self._metrics.realtime_refused_address_total += 1
            return None
        return PendingSocket(peer, counted, is_surplus=is_surplus)

    def leave(self, visit: PendingSocket) -> None:
        """Stop counting a closed socket. Further calls have no effect."""
        self._depart(visit.group)
        visit.group = None

    def _depart(self, group: AddressGroup | None) -> None:
        if group is not None:
            self._address_limits.leave(group)

    def count(self, counter: str) -> None:
        """Count a refused request or a closed socket by the name of its metric."""
        setattr(self._metrics, counter, getattr(self._metrics, counter) + 1)

    def crowded(self, visit: PendingSocket) -> Refusal | None:
        group = visit.group
        if group is None or not self._rules.per_address or not self._address_limits.is_full(group):
            return None
        self._metrics.realtime_refused_address_total += 1
        return FULL

    def surplus(self, visit: PendingSocket) -> Refusal | None:
        """Return the refusal of a client for which no descriptor is left."""
        if not visit.is_surplus:
            return None
        self._exhausted()
        return EXHAUSTED._replace(retry_s=random.randint(EXHAUSTED_RETRY_S, 2 * EXHAUSTED_RETRY_S))

    def _exhausted(self) -> None:
        self._metrics.realtime_refused_descriptors_total += 1
        if self._now() >= self._exhausted_at + LOG_EVERY_S:
            self._exhausted_at = self._now()
            reason = f"{self._rules.descriptors.clients} file descriptors are in use"
            log(log_events.SOCKETS_EXHAUSTED, reason=reason)

    def misnamed(self, path: bytes, headers: Mapping[bytes, bytes]) -> Refusal | None:
        if self._rules.hosts.allows(headers.get(b"host", b"")) or path in PROBES:
            return None
        self._metrics.realtime_refused_host_total += 1
        return WRONG_HOST

    def receive(self, visit: PendingSocket, headers: Mapping[bytes, bytes], *, secure: bool) -> Refusal | str:
        """Check a WebSocket handshake; return the client's address, or the refusal."""
        if not self._rules.hosts.allow_any and (refusal := self.misnamed(b"", headers)):
            return refusal
        address, proxies = visit.peer, self._rules.proxies
        if visit.group is None:
            address = proxies.client(visit.peer, headers)
            secure = secure or proxies.is_secure(headers)
            if address != visit.peer:
                visit.group = self._address_limits.enter(address_group(address))
        if b"origin" in headers and not self._allows_origin(headers, secure=secure):
            return WRONG_ORIGIN
        return self.crowded(visit) or address

    def allows_page(self, peer: str, headers: Mapping[bytes, bytes], *, secure: bool) -> bool:
        """Return whether the page that sent a request may connect. Requests that come from no page are allowed."""
        proxies = self._rules.proxies
        return self._allows_origin(headers, secure=secure or (proxies.trusts(peer) and proxies.is_secure(headers)))

    def _allows_origin(self, headers: Mapping[bytes, bytes], *, secure: bool) -> bool:
        origin = headers.get(b"origin")
        if self._rules.origins.allows(origin, headers.get(b"host", b""), secure=secure):
            return True
        self._metrics.realtime_refused_origin_total += 1
        self._log_refusal(origin)
        return False

    def _log_refusal(self, origin: bytes | None) -> None:
        """Log a refused origin at most every LOG_EVERY_S.

        An operator who forgot to list an origin must find out. Under attack the log must stay small.
        """
        if self._now() >= self._logged_at + LOG_EVERY_S:
            self._logged_at = self._now()
            shown = (origin or b"")[:200].decode("latin-1")
            log(log_events.PAGE_REFUSED, origin=shown)
