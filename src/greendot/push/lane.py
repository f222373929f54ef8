"""What is around each provider: so many at once, and rest for one that is in trouble.

A provider that is slow must not hold everything a worker has in its hands: who finds no room is put off. One that fails
is left alone for a while, and what is for it is put off, without counting as an attempt. Where devices name the place
themselves, as in Web Push, each place is on its own: one that a stranger runs cannot hold up the others.
"""

from __future__ import annotations

import asyncio
import random

from msgspec import Struct

from greendot.clock import Clock
from greendot.core.rests import Rests
from greendot.logs import events
from greendot.logs.telling import tell
from greendot.push.sender import Parcel, ProviderSender, Sender, Sent
from greendot.store.pushes import Device, Provider

DRY_RUN = "dry run"


class Bounds(Struct, frozen=True):
    """From the settings."""

    at_once: int = 100  # sends to one place
    patience_s: float = 5.0  # who does not get its turn by then is put off
    rest_after: int = 5  # failures in a row
    longest_rest_s: float = 60.0
    most_places: int = 500


class _Place(Struct):
    """How it goes at one place."""

    room: asyncio.Semaphore
    rests: Rests
    users: int = 0


class LaneCounts(Struct):
    """What was held back."""

    held: int = 0
    rests: int = 0  # begun


class Lane:
    """One provider of one tenant."""

    def __init__(
        self,
        sender: ProviderSender,
        tenant: str,
        provider: Provider,
        clock: Clock,
        bounds: Bounds | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        self.counts = LaneCounts()
        self._sender = sender
        self._tenant = tenant
        self._provider = provider
        self._clock = clock
        self._bounds = bounds or Bounds()
        self._dry_run = dry_run  # nothing is sent, and everything else is done
        self._places: dict[str, _Place] = {}  # those used last at the end

    async def send(self, device: Device, parcel: Parcel) -> Sent:
        if self._dry_run:
            return Sent("sent", DRY_RUN)
        place = self._place(self._sender.place(device))
        if place is None:
            return self._held("too many places are being sent to", self._bounds.patience_s)
        place.users += 1
        try:
            return await self._in_turn(place, device, parcel)
        finally:
            place.users -= 1

    async def close(self) -> None:
        await self._sender.close()

    def resting(self) -> int:
        """How many places are left alone at the moment."""
        now = self._clock.monotonic()
        return sum(place.rests.wait_s(now) > 0 for place in self._places.values())

    def _place(self, name: str) -> _Place | None:
        """None if there are too many."""
        found = self._places.pop(name, None)
        if found is None:
            if len(self._places) >= self._bounds.most_places:
                unused = next((name for name, place in self._places.items() if not place.users), None)
                if unused is None:
                    return None
                del self._places[unused]
            rests = Rests(self._bounds.rest_after, self._bounds.longest_rest_s)
            found = _Place(asyncio.Semaphore(self._bounds.at_once), rests)
        self._places[name] = found
        return found

    async def _in_turn(self, place: _Place, device: Device, parcel: Parcel) -> Sent:
        if (wait_s := place.rests.wait_s(self._clock.monotonic())) > 0:
            return self._held("the provider rests after failures", wait_s)
        try:
            async with asyncio.timeout(self._bounds.patience_s if place.room.locked() else None):
                await place.room.acquire()
        except TimeoutError:
            return self._held("the provider is slow, and others wait too", self._bounds.patience_s)
        try:
            # Those before may have found out that there is no use.
            if (wait_s := place.rests.wait_s(self._clock.monotonic())) > 0:
                return self._held("the provider rests after failures", wait_s)
            return await self._try(place.rests, device, parcel)
        finally:
            place.room.release()

    async def _try(self, rests: Rests, device: Device, parcel: Parcel) -> Sent:
        was_try, went_well = rests.begin(), None
        try:
            sent = await self._sender.send(device, parcel)
            went_well = not sent.is_away
        except Exception as error:
            tell(events.WORK_FAILED, error, work=f"push by {self._provider}", tenant=self._tenant)
            sent, went_well = Sent("failed", "an error in Greendot, see its log", is_away=True), False
        finally:
            now, was_open = self._clock.monotonic(), rests.is_open
            rests.end(now, random.random(), was_try=was_try, went_well=went_well)
        if sent.wait_s > 0:
            rests.told(now, sent.wait_s)
        self._note(was_open, rests.is_open, sent)
        return sent

    def _held(self, reason: str, wait_s: float) -> Sent:
        """Not all of them come again at the same moment."""
        self.counts.held += 1
        return Sent("failed", reason, wait_s * (1 + random.random() / 4), is_tried=False)

    def _note(self, was_open: bool, is_open: bool, sent: Sent) -> None:
        if is_open and not was_open:
            self.counts.rests += 1
            tell(events.PUSH_RESTS, provider=self._provider, tenant=self._tenant, reason=sent.reason)
        elif was_open and not is_open:
            tell(events.PUSH_GOES_ON, provider=self._provider, tenant=self._tenant)


_: type[Sender] = Lane
