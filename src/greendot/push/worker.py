"""Push worker: claims due pushes from the queue, calls the gate, sends, and records the results.

Several workers share one queue, on one node or many. Pushes held by a worker that dies are due again when their lease
ends. A push that was sent but not recorded is sent again then, under the same key.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from greendot.clock import Clock
from greendot.errors import StoreUnavailable
from greendot.ids import Key, new_message_id
from greendot.push.attempt import AN_ERROR, Attempt, sent_to_all
from greendot.push.payload import Sender, SendResult
from greendot.push.policy_model import HOUR_MS, Decision, PushCandidate, PushPolicy, RecipientState, decide
from greendot.push.quiet_hours import Quiet, quiet_until
from greendot.store.inbox import Notification
from greendot.store.push import Device, Provider, Push, PushCounts, PushStore, Settled
from greendot.telemetry import log_events
from greendot.telemetry.log import log

LEASE_MS = 60_000  # lease of a claimed push; longer than a send may take
AWAY_S = 1.0  # seconds between two attempts while the store is away
TOGETHER_S = 0.02  # seconds within which finished sends are recorded in one commit
COUNT_S = 10.0  # seconds between two counts of the queue

RecipientReader = Callable[[Mapping[Key, Collection[str]]], Awaitable[Mapping[Key, RecipientState]]]


class WorkerPace(Struct, frozen=True):
    """Pace of a worker, from the settings."""

    at_once: int = 500  # maximum number of pushes that this worker holds
    poll_s: float = 1.0
    give_up_ms: int = 24 * HOUR_MS


class TenantPushConfig(Struct, frozen=True):
    """Push configuration of a tenant."""

    senders: Mapping[Provider, Sender]
    policy: Callable[[str], PushPolicy]  # by kind
    ids_only: Callable[[str], bool]  # by kind: whether no content leaves the server


class PushCounters(Struct):
    """Counters of a worker."""

    decided: dict[tuple[str, str], int] = {}  # by action and reason
    results: dict[tuple[str, str], int] = {}  # by provider and outcome
    dead: int = 0
    queue: PushCounts = PushCounts(0, 0, None, 0)  # at the last count
    oldest_s: int = 0  # how long the oldest due push had been due then


class _Done(NamedTuple):
    """Result of a push, to be recorded."""

    key: Key
    settled: Settled
    gone: list[Device]


class PushWorker:
    """Worker that runs from `start` to `close`.

    `tenant_configs` returns the configuration of a tenant. `read_recipients` returns the states of users, given the
    rooms that their notifications are about.
    """

    def __init__(
        self,
        store: PushStore,
        tenant_configs: Callable[[str], TenantPushConfig | None],
        read_recipients: RecipientReader,
        clock: Clock,
        pace: WorkerPace,
    ) -> None:
        self.counters = PushCounters()
        self._store = store
        self._tenant_configs = tenant_configs
        self._read_recipients = read_recipients
        self._clock = clock
        self._pace = pace
        self._holder = new_message_id()
        self._sending: dict[int, asyncio.Task[None]] = {}  # by push id
        self._held: Counter[str] = Counter()  # number of pushes being sent, by tenant
        self._done: list[_Done] = []  # results to be recorded
        self._made: dict[Key, dict[int, int]] = {}  # begin of pushes not recorded yet, by user and push id
        self._woken = asyncio.Event()
        self._count_at = 0.0  # monotonic seconds
        self._ending = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Check the queue now instead of at the next poll."""
        self._woken.set()

    async def close(self, finish_s: float) -> None:
        """Stop the worker. Sends may finish within `finish_s`; other pushes are due again when their lease ends."""
        self._ending = True
        self._woken.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=finish_s)
            self._task.cancel()
        tasks = [task for task in (self._task, *self._sending.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def once(self) -> None:
        """Send and record all pushes due now. Replaces `start` for a caller that controls the clock."""
        while True:
            took = await self._take(self._room())
            await asyncio.gather(*self._sending.values())
            await self._note()
            if not took:
                return

    # --- the loop ---

    async def _run(self) -> None:
        while not (self._ending and not self._sending and not self._done):
            is_full = False
            try:
                # Record earlier results first: no push is claimed until that succeeds.
                await self._note()
                room = self._room()
                is_full = await self._take(room) > self._pace.at_once // 4  # more may be due
                await self._note()
                await self._count()
            except StoreUnavailable as error:
                log(log_events.WORK_LATER, work="push", reason=error)
                await asyncio.sleep(AWAY_S)
            except Exception as error:
                log(log_events.WORK_FAILED, error, work="push")
                await asyncio.sleep(AWAY_S)
            if not is_full:
                await self._pause()

    async def _pause(self) -> None:
        """Wait until a send has ended, `wake` is called, or the poll interval is over."""
        try:
            async with asyncio.timeout(self._pace.poll_s):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()
        if self._sending and not self._ending:
            await asyncio.sleep(TOGETHER_S)  # other sends end soon too

    def _room(self) -> int:
        """Return the number of pushes that may be claimed."""
        return 0 if self._ending or self._done else self._pace.at_once - len(self._sending)

    async def _take(self, room: int) -> int:
        """Claim up to `room` due pushes and begin with them; return their number."""
        if room <= 0:
            return 0
        now = self._clock.now_ms()
        claimed = await self._store.claim_pushes(
            self._holder, now, LEASE_MS, room, since=now - HOUR_MS, held=self._held.copy()
        )
        # A push that is still being sent, or was during the claim, is not sent a second time.
        mine = {*self._sending, *(one.settled.id for one in self._done)}
        claimed = [push for push in claimed if push.id not in mine]
        if claimed:
            seen = await self._seen(claimed)
            for push in claimed:
                self._begin(push, seen.get((push.tenant, push.user), RecipientState(None)))
        return len(claimed)

    async def _note(self) -> None:
        """Record the results. Results that cannot be recorded are kept, so that no send is repeated."""
        done = self._done[:]
        if not done:
            return
        gone = [device for one in done for device in one.gone]
        await self._store.settle_pushes(self._holder, [one.settled for one in done], gone, self._clock.now_ms())
        del self._done[: len(done)]
        for one in done:
            begun = self._made.get(one.key, {})
            begun.pop(one.settled.id, None)
            if not begun:
                self._made.pop(one.key, None)

    async def _count(self) -> None:
        """Count the pushes in the queue, at most every `COUNT_S`."""
        if (now := self._clock.monotonic()) >= self._count_at:
            self._count_at = now + COUNT_S
            at = self._clock.now_ms()
            queue = self.counters.queue = await self._store.push_counts(at)
            self.counters.oldest_s = 0 if queue.oldest_due_at is None else (at - queue.oldest_due_at) // 1000

    # --- the gate ---

    async def _seen(self, claimed: Sequence[Push]) -> Mapping[Key, RecipientState]:
        try:
            return await self._read_recipients(_rooms(claimed))
        except StoreUnavailable:
            raise
        except Exception as error:  # an unknown state delays no push
            log(log_events.WORK_FAILED, error, work="reading recipient states for push")
            return {}

    def _begin(self, push: Push, seen: RecipientState) -> None:
        """Begin a push. On an error put the push off, and in the end give up, so that other pushes are not blocked."""
        try:
            self._decided(push, seen)
        except Exception as error:
            log(log_events.PUSH_FAILED, error, message=push.id, tenant=push.tenant)
            self._done.append(_Done((push.tenant, push.user), self._trial(push).put_off(AN_ERROR), []))

    def _decided(self, push: Push, seen: RecipientState) -> None:
        tenant_config, notification, key = (
            self._tenant_configs(push.tenant),
            push.notification,
            (push.tenant, push.user),
        )
        if tenant_config is None or notification is None:
            found = Decision("never", "expired" if notification is None else "kind_off")
        else:
            found = self._decide(push, notification, tenant_config, seen)
        _add(self.counters.decided, (found.action, found.reason))
        if found.action == "now" and tenant_config is not None and notification is not None:
            self._made.setdefault(key, {})[push.id] = self._clock.now_ms()
            sending = asyncio.get_running_loop().create_task(
                self._send(push, notification, tenant_config, found.reason)
            )
            self._sending[push.id] = sending
            self._held[push.tenant] += 1
            return
        due_at = found.at if found.action == "later" else None
        self._done.append(_Done(key, Settled(push.id, found.reason, due_at=due_at, results=push.results), []))

    def _decide(
        self, push: Push, notification: Notification, tenant_config: TenantPushConfig, seen: RecipientState
    ) -> Decision:
        matter = _matter(push, notification)
        chosen, now = push.choices, self._clock.now_ms()
        quiet = quiet_until(Quiet(chosen.quiet_begins, chosen.quiet_ends, chosen.zone), now)
        policy = tenant_config.policy(notification.kind)
        found = decide(matter, seen, policy, now, quiet_until=quiet, recent=self._recent(push))
        if found.action == "now" and not targets(push, tenant_config):
            return Decision("never", "no_device")
        return found

    def _recent(self, push: Push) -> Sequence[int]:
        """Return the times of the user's pushes that count against the cap: stored ones, and this worker's own."""
        if any(result.outcome == "sent" for result in push.results):
            return ()  # this push is counted already, and has devices left
        return [*push.recent, *self._made.get((push.tenant, push.user), {}).values()]

    # --- sending ---

    def _trial(self, push: Push) -> Attempt:
        return Attempt(push, self._clock.now_ms(), self._pace.give_up_ms, random.random())

    async def _send(self, push: Push, notification: Notification, tenant_config: TenantPushConfig, reason: str) -> None:
        key, to = (push.tenant, push.user), targets(push, tenant_config)
        try:
            sent = await sent_to_all(
                push, notification, to, tenant_config.senders, ids_only=tenant_config.ids_only(notification.kind)
            )
            settled = self._trial(push).settled(reason, to, sent, notification.expires_at)
            self._count_results(to, sent, settled)
            gone = [device for device, one in zip(to, sent, strict=True) if one.outcome == "gone"]
            self._done.append(_Done(key, settled, gone))
        except Exception as error:
            log(log_events.PUSH_FAILED, error, message=push.id, tenant=push.tenant)
            self._done.append(_Done(key, self._trial(push).put_off(AN_ERROR), []))
        finally:
            self._sending.pop(push.id, None)
            self._held -= Counter([push.tenant])  # drops tenants with none
            self._woken.set()

    def _count_results(self, to: Sequence[Device], sent: Sequence[SendResult], settled: Settled) -> None:
        for device, one in zip(to, sent, strict=True):
            _add(self.counters.results, (device.provider, one.outcome if one.is_tried else "held"))
        self.counters.dead += settled.is_dead


def targets(push: Push, tenant_config: TenantPushConfig) -> list[Device]:
    """Return the devices that the push has not reached.

    A device that refused is tried again only after an operator has requeued the push (`attempts` is 0 then).
    """
    over = {"sent", "gone", "refused"} if push.attempts else {"sent", "gone"}
    done = {result.device for result in push.results if result.outcome in over}
    return [device for device in push.devices if device.provider in tenant_config.senders and device.device not in done]


def _matter(push: Push, notification: Notification) -> PushCandidate:
    is_acked = notification.acked_at is not None
    is_seen = any(at is not None for at in (notification.seen_at, notification.read_at, notification.archived_at))
    return PushCandidate(
        push.created_at,
        push.importance,
        push.room,
        notification.expires_at,
        done=is_acked or (is_seen and not notification.ack),
        must_ack=notification.ack,
        seen=is_seen,
    )


def _rooms(pushes: Sequence[Push]) -> dict[Key, set[str]]:
    rooms: dict[Key, set[str]] = {}
    for push in pushes:
        theirs = rooms.setdefault((push.tenant, push.user), set())
        if push.room is not None:
            theirs.add(push.room)
    return rooms


def _add(counts: dict[tuple[str, str], int], key: tuple[str, str]) -> None:
    counts[key] = counts.get(key, 0) + 1
