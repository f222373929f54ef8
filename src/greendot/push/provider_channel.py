"""Channels to providers: a limit of concurrent sends, and a circuit breaker for each host.

A slow provider must not occupy all slots of a worker: a send that gets no slot in time is put off. While the breaker of
a host is open, sends to the host are put off without counting as attempts. Where devices name the host, as in Web Push,
each host has its own breaker. Tenants that share an account have channels of their own, and do not delay each other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from msgspec import Struct

from greendot.clock import Clock
from greendot.push.circuit_breaker_model import CircuitBreaker
from greendot.push.payload import ProviderSender, PushPayload, Sender, SendResult
from greendot.push.send_slots import HostSlots, Slots
from greendot.store.push import Device, Provider
from greendot.telemetry import log_events
from greendot.telemetry.log import log

DRY_RUN = "dry run"
MOST_LANES = 1_000  # tenants whose channels are kept while they send nothing


class ChannelLimits(Struct, frozen=True):
    """Limits of a channel, from the settings."""

    at_once: int = 100  # concurrent sends to one host
    unproven: int = 20  # concurrent sends to all hosts that have not answered yet
    unproven_each: int = 5
    patience_s: float = 2.0  # a send without a slot after this time is put off
    put_off_s: float = 5.0  # time by which a send is put off
    rest_after: int = 5  # failures in a row that open the circuit breaker
    longest_rest_s: float = 60.0
    most_places: int = 500


class _Place(Struct):
    """State of one host."""

    host: HostSlots
    rests: CircuitBreaker
    users: int = 0
    is_stuck: bool = False  # a send got no slot in time, and none was answered since


class ChannelCounts(Struct):
    """Counts of sends that were put off, and of opened circuit breakers."""

    held: int = 0
    rests: int = 0  # times that a circuit breaker opened


class ProviderChannel:
    """Channel to one provider for one tenant."""

    def __init__(
        self,
        sender: ProviderSender,
        tenant: str,
        provider: Provider,
        clock: Clock,
        bounds: ChannelLimits | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        self.counts = ChannelCounts()
        self._sender = sender
        self._tenant = tenant
        self._provider = provider
        self._clock = clock
        self._bounds = bounds or ChannelLimits()
        self._dry_run = dry_run  # everything is done except the send
        self._places: dict[str, _Place] = {}  # by host, last used last
        self._slots = Slots(
            each=self._bounds.at_once, unproven=self._bounds.unproven, unproven_each=self._bounds.unproven_each
        )

    @property
    def is_idle(self) -> bool:
        return not any(place.users for place in self._places.values())

    async def send(self, device: Device, payload: PushPayload) -> SendResult:
        if self._dry_run:
            return SendResult("sent", DRY_RUN)
        place = self._place(self._sender.place(device))
        if place is None:
            return self._held("not sent: too many push hosts are in use", self._bounds.put_off_s)
        place.users += 1
        try:
            return await self._in_turn(place, device, payload)
        finally:
            place.users -= 1

    async def close(self) -> None:
        await self._sender.close()

    def resting(self) -> int:
        """Return the number of hosts to which sends are put off now."""
        now = self._clock.monotonic()
        return sum(place.rests.wait_s(now) > 0 for place in self._places.values())

    def _place(self, name: str) -> _Place | None:
        """Return the state of a host, making it if needed; None if too many hosts are in use."""
        found = self._places.pop(name, None)
        if found is None:
            if len(self._places) >= self._bounds.most_places:
                unused = next((name for name, place in self._places.items() if not place.users), None)
                if unused is None:
                    return None
                del self._places[unused]
            rests = CircuitBreaker(self._bounds.rest_after, self._bounds.longest_rest_s)
            found = _Place(HostSlots(is_known=self._sender.is_known(name)), rests)
        self._places[name] = found
        return found

    async def _in_turn(self, place: _Place, device: Device, payload: PushPayload) -> SendResult:
        if (wait_s := place.rests.wait_s(self._clock.monotonic())) > 0:
            return self._held("not sent: the circuit breaker is open after failures of the provider", wait_s)
        if place.is_stuck and not self._slots.is_free(place.host):
            return self._held("not sent: the provider is slow and other pushes wait", self._bounds.put_off_s)
        try:
            async with asyncio.timeout(self._bounds.patience_s):
                slot = await self._slots.acquire(place.host)
        except TimeoutError:
            place.is_stuck = True
            return self._held("not sent: the provider is slow and other pushes wait", self._bounds.put_off_s)
        try:
            # Sends before this one may have opened the circuit breaker.
            if (wait_s := place.rests.wait_s(self._clock.monotonic())) > 0:
                return self._held("not sent: the circuit breaker is open after failures of the provider", wait_s)
            return await self._try(place, device, payload)
        finally:
            self._slots.release(place.host, slot)

    async def _try(self, place: _Place, device: Device, payload: PushPayload) -> SendResult:
        rests = place.rests
        was_try, went_well = rests.begin(), None
        try:
            sent = await self._sender.send(device, payload)
            went_well = not sent.is_away if sent.is_tried else None
        except Exception as error:
            log(log_events.WORK_FAILED, error, work=f"push by {self._provider}", tenant=self._tenant)
            sent, went_well = (
                SendResult("failed", "internal error in Greendot; see the server log", is_away=True),
                False,
            )
        finally:
            now, was_open = self._clock.monotonic(), rests.is_open
            rests.end(now, random.random(), was_try=was_try, went_well=went_well)
        if went_well is not None:
            place.is_stuck = place.is_stuck and not went_well
            self._slots.prove(place.host, went_well)
        if sent.wait_s > 0 and sent.is_tried:
            rests.asked_to_rest(now, sent.wait_s)
        self._note(was_open, rests.is_open, sent)
        return sent

    def _held(self, reason: str, wait_s: float) -> SendResult:
        """Put off a send by `wait_s` and a random part, so that sends do not return at the same moment."""
        self.counts.held += 1
        return SendResult("failed", reason, wait_s * (1 + random.random() / 4), is_tried=False)

    def _note(self, was_open: bool, is_open: bool, sent: SendResult) -> None:
        if is_open and not was_open:
            self.counts.rests += 1
            log(log_events.PUSH_CIRCUIT_OPEN, provider=self._provider, tenant=self._tenant, reason=sent.reason)
        elif was_open and not is_open:
            log(log_events.PUSH_GOES_ON, provider=self._provider, tenant=self._tenant)


class SharedChannels:
    """Channels of a provider account that several tenants share: each tenant has its own."""

    def __init__(self, make: Callable[[str], ProviderChannel], sender: Sender) -> None:
        self._make = make
        self._sender = sender
        self._channels: dict[str, ProviderChannel] = {}  # by tenant, last used last

    async def send(self, device: Device, payload: PushPayload) -> SendResult:
        channel = self._channels.pop(device.tenant, None) or self._make(device.tenant)
        self._channels[device.tenant] = channel
        if len(self._channels) > MOST_LANES:
            idle = next((tenant for tenant, channel in self._channels.items() if channel.is_idle), None)
            if idle is not None and idle != device.tenant:
                del self._channels[idle]
        return await channel.send(device, payload)

    async def close(self) -> None:
        await self._sender.close()


_: tuple[type[Sender], ...] = (ProviderChannel, SharedChannels)
