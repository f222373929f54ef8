"""Resolver of host names for outbound calls, with threads of its own.

The event loop's own look-ups share a few threads (libuv has four). A name server that does not answer occupies a thread
for half a minute, because a look-up in a thread cannot be cancelled. Redis and PostgreSQL need the loop's threads, so
all other names are looked up here.

Look-ups are limited in total, by share (a tenant) and by domain. Each name has at most one look-up at a time, whatever
the number of callers. Failures are remembered. The last good answer is used while a name server is silent.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from msgspec import Struct

from greendot.errors import GreendotError

Value = TypeVar("Value")

KEEP_S = 3_600.0  # lifetime of the last good answer, which is used while the name server does not answer
MOST_NAMES = 4_096  # names whose answers or failures are remembered
FINAL = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}  # the name does not exist


class NotResolved(GreendotError):
    """Host name without an address, or without an answer in time."""


class ResolverBusy(GreendotError):
    """Host name that was not looked up, because too many other look-ups are under way."""


class Bounds(Struct, frozen=True):
    """Limits of a resolver."""

    at_once: int = 64  # look-ups, each in a thread
    each_share: int = 64
    each_domain: int = 64
    patience_s: float = 30.0  # longest wait for a free thread, and for an answer
    pause_s: float = 1.0  # wait before a failed name is looked up again; doubles with each failure
    longest_pause_s: float = 5.0


# Names from the settings. Each is looked up at most once at a time, and works again soon after an outage ends.
CONFIGURED = Bounds()
# Names that users chose. A resolver whose first name server is down answers after 5 s, so the patience is longer.
STRANGERS = Bounds(at_once=32, each_share=8, each_domain=2, patience_s=8.0, pause_s=15.0, longest_pause_s=900.0)


class ResolverCounts(Struct):
    """Counts of look-ups since the start."""

    failed: int = 0  # no answer in time, or no address
    refused: int = 0  # no free thread in time


class _Outcome(NamedTuple):
    """Result of a look-up: addresses, or the reason why there are none."""

    addresses: Sequence[str] = ()
    reason: str = ""
    is_final: bool = False  # the name server states that the name does not exist


class _Lookup(Struct, eq=False):
    """Look-up that is under way.

    `outcome` is set when the look-up ends, or earlier when it is given up. The thread continues in that case.
    """

    share: str
    domain: str
    outcome: asyncio.Future[_Outcome]


class _Failure(NamedTuple):
    """Name that is not looked up again before `until`."""

    until: float
    times: int  # failures in a row
    reason: str


class _Waiting(NamedTuple):
    """Caller that waits for a free look-up."""

    host: str
    share: str
    domain: str


class Resolver:
    """Cache and queue of look-ups, for one event loop."""

    def __init__(self, bounds: Bounds, now: Callable[[], float] = time.monotonic) -> None:
        self.counts = ResolverCounts()
        self._bounds = bounds
        self._now = now
        self._under_way: dict[str, _Lookup] = {}  # by host
        self._waiting: dict[asyncio.Future[_Lookup | None], _Waiting] = {}  # in the order of arrival
        self._failed: dict[str, _Failure] = {}
        self._known: dict[str, tuple[Sequence[str], float]] = {}  # last good answers, with the time of each

    @property
    def under_way(self) -> int:
        """Return the number of occupied threads."""
        return len(self._under_way)

    async def addresses(self, host: str, share: str = "") -> Sequence[str]:
        """Return all addresses of the host. `share` names whose limit the look-up uses up, such as a tenant.

        Raise NotResolved if there is no address or the name server does not answer, ResolverBusy if there was no free
        look-up in time.
        """
        if literal := _literal(host):
            return literal
        host = host.lower()
        wanted = _Waiting(host, share, _domain(host))
        try:
            async with asyncio.timeout(self._bounds.patience_s):
                lookup = self._lookup(wanted)
                while lookup is None:
                    if (known := self._last_known(host)) is not None:
                        return known
                    lookup = await self._turn(wanted) or self._lookup(wanted)
        except TimeoutError:
            self.counts.refused += 1
            raise ResolverBusy(f"{host} was not looked up: too many other lookups are pending") from None
        found = lookup if isinstance(lookup, _Failure) else await asyncio.shield(lookup.outcome)
        if isinstance(found, _Outcome) and found.addresses:
            return found.addresses
        if (known := self._last_known(host)) is not None:
            return known
        raise NotResolved(f"{host} could not be resolved: {found.reason}")

    def _lookup(self, wanted: _Waiting) -> _Lookup | _Failure | None:
        """Return the look-up to wait for, or the failure that is still remembered; None if there is no room."""
        if (lookup := self._under_way.get(wanted.host)) is not None:
            return lookup
        if (failure := self._failed.get(wanted.host)) is not None and self._now() < failure.until:
            return failure
        return self._begin(wanted) if self._has_room(wanted) else None

    def _last_known(self, host: str) -> Sequence[str] | None:
        addresses, at = self._known.get(host, ((), 0.0))
        return addresses if addresses and self._now() - at < KEEP_S else None

    # --- turns ---

    def _has_room(self, wanted: _Waiting) -> bool:
        lookups = self._under_way.values()
        return (
            len(lookups) < self._bounds.at_once
            and sum(one.share == wanted.share for one in lookups) < self._bounds.each_share
            and sum(one.domain == wanted.domain for one in lookups) < self._bounds.each_domain
        )

    async def _turn(self, wanted: _Waiting) -> _Lookup | None:
        """Wait until a look-up may be free. Return the look-up that another caller started for the name, or None."""
        turn: asyncio.Future[_Lookup | None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = wanted
        try:
            return await turn
        except asyncio.CancelledError:
            if self._waiting.pop(turn, None) is None:
                self._wake_next()  # this caller was woken already: wake the next one instead
            raise

    def _wake_next(self) -> None:
        for turn, wanted in self._waiting.items():
            if self._has_room(wanted):
                self._wake(turn)
                return

    def _wake(self, turn: asyncio.Future[_Lookup | None], lookup: _Lookup | None = None) -> None:
        del self._waiting[turn]
        if not turn.done():
            turn.set_result(lookup)

    # --- look-ups ---

    def _begin(self, wanted: _Waiting) -> _Lookup:
        loop, host = asyncio.get_running_loop(), wanted.host
        lookup = _Lookup(wanted.share, wanted.domain, loop.create_future())

        def work() -> None:
            outcome = _look_up(host)
            with suppress(RuntimeError):  # raised if the loop was closed during the look-up
                loop.call_soon_threadsafe(self._ended, host, lookup, timer, outcome)

        timer = loop.call_later(self._bounds.patience_s, self._give_up, host, lookup)
        try:
            threading.Thread(target=work, name="greendot-resolver", daemon=True).start()
        except RuntimeError:  # the system has no more threads
            timer.cancel()
            raise ResolverBusy(f"{host} was not looked up: no thread could be started") from None
        self._under_way[host] = lookup
        for turn in [turn for turn, other in self._waiting.items() if other.host == host]:
            self._wake(turn, lookup)
        return lookup

    def _give_up(self, host: str, lookup: _Lookup) -> None:
        """Fail all callers that wait. The thread stays occupied, and the name fails at once until the thread ends."""
        reason = f"its name server did not answer within {self._bounds.patience_s:g} s"
        self._note(host, _Outcome(reason=reason))
        lookup.outcome.set_result(_Outcome(reason=reason))

    def _ended(self, host: str, lookup: _Lookup, timer: asyncio.TimerHandle, outcome: _Outcome) -> None:
        timer.cancel()
        del self._under_way[host]
        if not lookup.outcome.done():
            self._note(host, outcome)
            lookup.outcome.set_result(outcome)
        elif outcome.addresses or outcome.is_final:
            self._note(host, outcome)  # too late for the callers, but useful for the next
        self._wake_next()

    def _note(self, host: str, outcome: _Outcome) -> None:
        if outcome.addresses:
            self._failed.pop(host, None)
            _put(self._known, host, (outcome.addresses, self._now()))
            return
        self.counts.failed += 1
        if outcome.is_final:
            self._known.pop(host, None)
        times = 1 + (self._failed[host].times if host in self._failed else 0)
        pause_s = min(self._bounds.longest_pause_s, self._bounds.pause_s * 2.0 ** min(times - 1, 30))
        _put(self._failed, host, _Failure(self._now() + pause_s, times, outcome.reason))


def _put(kept: dict[str, Value], host: str, value: Value) -> None:
    """Store the value as the newest; drop the oldest if there are too many."""
    kept.pop(host, None)
    if len(kept) >= MOST_NAMES:
        del kept[next(iter(kept))]
    kept[host] = value


def _literal(host: str) -> list[str]:
    """Return the address if the host is one, in any notation, without asking a name server; else an empty list."""
    try:
        return _found(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    except (OSError, UnicodeError):
        return []


def _look_up(host: str) -> _Outcome:
    try:
        found = _found(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except socket.gaierror as error:
        return _Outcome(reason=error.strerror or str(error), is_final=error.errno in FINAL)
    except (OSError, UnicodeError) as error:
        return _Outcome(reason=str(error).partition("\n")[0][:200] or type(error).__name__)
    return _Outcome(found, "" if found else "the name has no address")


def _found(entries: Sequence[tuple[object, object, object, str, tuple[object, ...]]]) -> list[str]:
    return [*dict.fromkeys(str(address[0]) for *_, address in entries)]


def _domain(host: str) -> str:
    """Return the part of the name that one party owns. The owner of a domain can make any number of names in it."""
    return ".".join(host.rstrip(".").split(".")[-2:])
