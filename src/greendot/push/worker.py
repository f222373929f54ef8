"""The worker: takes what is due from the queue, asks the gate, sends, and notes what came of it.

Several work on one queue, on one node or many. What one holds when it dies is due again when its lease ends. What was
sent and not noted is sent again then, under the same key.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct, structs

from greendot.clock import Clock
from greendot.core.gate import HOUR_MS, Decision, Matter, Policy, Seen, decide
from greendot.core.hooks import pause_s
from greendot.errors import StoreUnavailable
from greendot.ids import Id, new_message_id
from greendot.push.quiet import Quiet, quiet_until
from greendot.push.sender import Sender, Sent, parcel
from greendot.store.base import Key, Notification
from greendot.store.pushes import Device, Provider, Push, PushStore, Result, Settled

LEASE_MS = 60_000  # longer than a send may take
AWAY_S = 1.0  # between two looks at a store that is away
MOST_REASON = 300  # characters
NOT_AGAIN = ("sent", "gone", "refused")

Look = Callable[[Sequence[Key], Mapping[Key, set[str]]], Awaitable[Mapping[Key, Seen]]]
_log = logging.getLogger("greendot.push")


class Pace(Struct, frozen=True):
    """From the settings."""

    at_once: int = 500  # pushes held by this worker
    poll_s: float = 0.5
    give_up_ms: int = 24 * HOUR_MS


class House(Struct, frozen=True):
    """How one tenant pushes."""

    senders: Mapping[Provider, Sender]
    policy: Callable[[str], Policy]  # of a kind
    ids_only: Callable[[str], bool]  # of a kind: nothing of what it says leaves the house


class PushCounters(Struct):
    """What was done, by a worker."""

    decided: dict[tuple[str, str], int] = {}  # by action and reason
    results: dict[tuple[str, str], int] = {}  # by provider and outcome
    dead: int = 0


class PushWorker:
    """Runs from `start` to `close`. `look` answers how users stand, given the rooms their notifications are about."""

    def __init__(self, store: PushStore, houses: Mapping[str, House], look: Look, clock: Clock, pace: Pace) -> None:
        self.counters = PushCounters()
        self._store = store
        self._houses = houses
        self._look = look
        self._clock = clock
        self._pace = pace
        self._holder = new_message_id()
        self._sending: dict[asyncio.Task[tuple[Settled, list[Device]]], int] = {}  # with the ids of their pushes
        self._woken = asyncio.Event()
        self._ending = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """There may be something due: look now, and not at the next turn."""
        self._woken.set()

    async def close(self, finish_s: float) -> None:
        """What is being sent is finished, if it does not take longer; the rest is due again when the lease ends."""
        self._ending = True
        self._woken.set()
        if self._task is None:
            return
        await asyncio.wait([self._task], timeout=finish_s)
        for task in (self._task, *self._sending):
            task.cancel()
        await asyncio.gather(self._task, *self._sending, return_exceptions=True)

    async def _run(self) -> None:
        while not (self._ending and not self._sending):
            try:
                is_full = await self._turn()
            except StoreUnavailable as error:
                _log.info("push waits for the store: %s", error)
                is_full = False
                await asyncio.sleep(AWAY_S)
            except Exception:
                _log.exception("push failed; it begins again")
                is_full = False
                await asyncio.sleep(AWAY_S)
            if not is_full:
                await self._pause()

    async def _turn(self) -> bool:
        """Take some and note what has been done; whether there may be more to take at once."""
        room = 0 if self._ending else self._pace.at_once - len(self._sending)
        claimed = await self._claim(room) if room > 0 else []
        now = self._clock.now_ms()
        seen = await self._look_at(claimed)
        settled = [found for push in claimed if (found := self._decided(push, seen, now)) is not None]
        gone = await self._collect(settled)
        if settled:
            await self._store.settle_pushes(self._holder, settled, gone, self._clock.now_ms())
        return len(claimed) == room > 0

    async def _claim(self, limit: int) -> list[Push]:
        now = self._clock.now_ms()
        return await self._store.claim_pushes(self._holder, now, LEASE_MS, limit, since=now - HOUR_MS)

    async def _collect(self, settled: list[Settled]) -> list[Device]:
        """Add what became of those that were being sent."""
        gone: list[Device] = []
        for task in [task for task in self._sending if task.done()]:
            del self._sending[task]
            found, theirs = task.result()
            settled.append(found)
            gone += theirs
            self.counters.dead += found.is_dead
        return gone

    async def _pause(self) -> None:
        """Until something was sent, or somebody says that there is something, or for a while."""
        self._woken.clear()
        waits = [asyncio.ensure_future(self._woken.wait()), *self._sending]
        done, _ = await asyncio.wait(waits, timeout=self._pace.poll_s, return_when=asyncio.FIRST_COMPLETED)
        waits[0].cancel()
        if done and self._sending:
            await asyncio.sleep(0.01)  # others end soon too: they are noted together

    # --- the gate ---

    async def _look_at(self, claimed: Sequence[Push]) -> Mapping[Key, Seen]:
        rooms: dict[Key, set[str]] = {}
        for push in claimed:
            theirs = rooms.setdefault((push.tenant, push.user), set())
            if push.room is not None:
                theirs.add(push.room)
        return await self._look([*rooms], rooms) if rooms else {}

    def _decided(self, push: Push, seen: Mapping[Key, Seen], now: int) -> Settled | None:
        """None: it is being sent."""
        house, notification = self._houses.get(push.tenant), push.notification
        if house is None or notification is None:
            found = Decision("never", "expired" if notification is None else "kind_off")
        else:
            found = self._decide(push, notification, house, seen.get((push.tenant, push.user), Seen(None)), now)
        decided = self.counters.decided
        decided[found.action, found.reason] = decided.get((found.action, found.reason), 0) + 1
        if found.action == "later":
            return Settled(push.id, found.reason, due_at=found.at, results=push.results)
        if found.action == "never" or house is None or notification is None:
            return Settled(push.id, found.reason, results=push.results)
        sending = self._send(push, notification, house, found.reason)
        self._sending[asyncio.get_running_loop().create_task(sending)] = push.id
        return None

    def _decide(self, push: Push, notification: Notification, house: House, seen: Seen, now: int) -> Decision:
        done = notification.seen_at or notification.read_at or notification.archived_at or notification.acked_at
        matter = Matter(push.created_at, push.importance, push.room, notification.expires_at, done=done is not None)
        chosen = push.choices
        quiet = quiet_until(Quiet(chosen.quiet_begins, chosen.quiet_ends, chosen.zone), now)
        found = decide(matter, seen, house.policy(notification.kind), now, quiet_until=quiet, recent=push.recent)
        if found.action == "now" and not self._targets(push, house):
            return Decision("never", "no_device")
        return found

    # --- sending ---

    def _targets(self, push: Push, house: House) -> list[Device]:
        """The devices it still has to get to."""
        over = {result.device for result in push.results if result.outcome in NOT_AGAIN}
        return [device for device in push.devices if device.provider in house.senders and device.device not in over]

    async def _send(
        self, push: Push, notification: Notification, house: House, reason: str
    ) -> tuple[Settled, list[Device]]:
        targets, ids_only = self._targets(push, house), house.ids_only(notification.kind)
        sent = await asyncio.gather(
            *(
                house.senders[device.provider].send(device, parcel(push, notification, device, ids_only=ids_only))
                for device in targets
            )
        )
        now = self._clock.now_ms()
        results = {result.device: result for result in push.results}
        for device, one in zip(targets, sent, strict=True):
            results[device.device] = self._result(device, one, results.get(device.device), now)
        gone = [device for device, one in zip(targets, sent, strict=True) if one.outcome == "gone"]
        settled = Settled(
            push.id,
            reason,
            results=[*results.values()],
            tried=any(one.is_tried for one in sent),
            sent=[device.device for device, one in zip(targets, sent, strict=True) if one.outcome == "sent"],
        )
        return self._again(settled, push, notification, max((one.wait_s for one in sent), default=0.0), now), gone

    def _result(self, device: Device, sent: Sent, before: Result | None, now: int) -> Result:
        counted = self.counters.results
        outcome = sent.outcome if sent.is_tried else "held"
        counted[device.provider, outcome] = counted.get((device.provider, outcome), 0) + 1
        attempts = sent.is_tried + (before.attempts if before is not None else 0)
        return Result(device.device, device.provider, sent.outcome, now, attempts, sent.reason[:MOST_REASON])

    def _again(self, settled: Settled, push: Push, notification: Notification, wait_s: float, now: int) -> Settled:
        """Try again later what failed, or give it up."""
        outcomes = {result.outcome for result in settled.results}
        if "failed" not in outcomes:
            is_dead = "refused" in outcomes
        else:
            # Being held back is no failure of its own: that wait grows by itself.
            again_s = pause_s(push.attempts + 1, random.random(), wait_s) if settled.tried else wait_s
            due_at = now + round(again_s * 1000)
            over_at = min(push.created_at + self._pace.give_up_ms, notification.expires_at or 1 << 62)
            if due_at < over_at:
                return structs.replace(settled, due_at=due_at)
            is_dead = True
        if is_dead:
            said = next(result for result in settled.results if result.outcome in ("failed", "refused"))
            _log.error("push %s of tenant %s is given up: %s", push.id, Id(push.tenant), said.reason)
        return structs.replace(settled, is_dead=is_dead)
