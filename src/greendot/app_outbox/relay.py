"""Relay of outbox rows to the store: at least once, which the keys of the rows make once, and in order per stream.

Each node has one relay. The relay holds a share of the shards and runs a lane for each shard with rows: read, send,
remove. If a relay is killed in between, another relay sends its rows again under the same keys. Refused rows are set
aside, and later rows go on. A row that cannot be sent now holds up its room, or the inboxes of its batch;
the shard is retried after `poll_s`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from greendot.app_outbox.rows import MessageRow, NoticeRow, parse_row
from greendot.clock import Clock
from greendot.errors import ConfigError, EngineUnavailable, GreendotError, StoreUnavailable
from greendot.ids import Id, Key
from greendot.store.app_outbox import Outbox, OutboxRow, OutboxSession, SetAside
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft
from greendot.telemetry import log_events
from greendot.telemetry.log import log

BATCH = 256  # rows read at once; all notifications among them are written in one commit
FINISH_S = 2.0  # time for writes under way when the relay is closed
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
MOST_REASON = 500  # characters
COUNT_S = 10.0  # seconds between two counts of the waiting rows
MOST_COUNTED = 100_000  # rows: a count must not delay a backlog


class Publisher(Protocol):
    """Publisher of messages and notifications: writes to the store first, then publishes to connected clients."""

    async def append(self, tenant: str, room: str, draft: Draft) -> object:
        """Write and publish a message. Refused if there is no such room."""
        ...

    async def notify(self, notices: Sequence[Notice]) -> object:
        """Write and publish notifications. All are written, or none."""
        ...


class _Outcome(NamedTuple):
    done: list[int]
    aside: list[SetAside]
    held: bool = False  # a row could not be sent now


class RelayCounts(Struct):
    """Counters and state of a relay, for `/metrics`."""

    up: bool = False
    shards: int = 0
    relayed: int = 0
    set_aside: int = 0
    expired: int = 0
    waiting: int | None = 0  # rows at the last count, MOST_COUNTED at most; None: the count timed out
    oldest_s: float = 0.0


class Relay:
    """Relay of one node, from `start` to `close`. After an outage of the outbox or the store the relay continues."""

    def __init__(self, outbox: Outbox, delivery: Publisher, clock: Clock, poll_s: float = 1.0) -> None:
        self._outbox = outbox
        self._delivery = delivery
        self._clock = clock
        self._poll_s = poll_s
        self._wake = asyncio.Event()
        self._resting: dict[int, float] = {}  # shard with a row that could not be sent → loop time of its retry
        self._ending = False
        self._trouble: str | None = None
        self._task: asyncio.Task[None] | None = None
        self.counts = RelayCounts()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Finish the rows being sent; the rest is left to relays of other nodes."""
        self._ending = True
        self._wake.set()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=2 * FINISH_S)
            for task in late:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def items(self) -> dict[str, float]:
        """Return the metrics of the relay."""
        waiting = {} if self.counts.waiting is None else {"outbox_queue_waiting": self.counts.waiting}
        return {
            **waiting,
            "outbox_relay_up": int(self.counts.up),
            "outbox_shards": self.counts.shards,
            "outbox_queue_oldest_s": round(self.counts.oldest_s, 1),
            "outbox_relayed_total": self.counts.relayed,
            "outbox_set_aside_total": self.counts.set_aside,
            "outbox_expired_total": self.counts.expired,
        }

    # --- sessions ---

    async def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._ending:
            try:
                async with self._outbox.session(self._wake.set) as session:
                    await self._tend(session)
            except (StoreUnavailable, ConfigError) as error:
                pause = FIRST_PAUSE_S if self.counts.up else min(2 * pause, LONGEST_PAUSE_S)
                self._lost(str(error))
            except Exception as error:
                pause = LONGEST_PAUSE_S
                log(log_events.WORK_FAILED, error, work="app outbox relay")
            self.counts.up, self.counts.shards = False, 0
            if not self._ending:
                await asyncio.sleep(pause * random.uniform(0.7, 1.0))

    def _lost(self, trouble: str) -> None:
        if trouble != self._trouble:
            log(log_events.OUTBOX_AWAY, reason=trouble)
        self._trouble = trouble

    def _found(self) -> None:
        self.counts.up = True
        if self._trouble is not None:
            log(log_events.OUTBOX_BACK)
            self._trouble = None

    # --- shards ---

    async def _tend(self, session: OutboxSession) -> None:
        """Claim a share of the shards and start a lane for each shard that has rows, until `close`."""
        lanes: dict[int, asyncio.Task[None]] = {}
        loop, mine, next_claim = asyncio.get_running_loop(), frozenset[int](), 0.0
        next_count = loop.time() + COUNT_S  # rows are sent before the first count of a session
        try:
            while not self._ending:
                self._wake.clear()
                for shard in [shard for shard, lane in lanes.items() if lane.done()]:
                    lanes.pop(shard).result()
                if loop.time() >= next_claim:
                    mine, next_claim = await session.claim(lanes.keys()), loop.time() + self._poll_s
                    self.counts.shards = len(mine)
                resting = {shard for shard, until in self._resting.items() if until > loop.time()}
                for shard in await session.waiting(mine - lanes.keys() - resting):
                    lanes[shard] = loop.create_task(self._lane(session, shard))
                    # A lane that ends may miss rows written meanwhile: check the shards again then.
                    lanes[shard].add_done_callback(lambda _: self._wake.set())
                self._found()
                if loop.time() >= next_count:
                    next_count = loop.time() + COUNT_S
                    self.counts.waiting, self.counts.oldest_s = await session.depth(mine, MOST_COUNTED)
                await self._pause(next_claim - loop.time())
        finally:
            await _finish([*lanes.values()])

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _lane(self, session: OutboxSession, shard: int) -> None:
        self._resting.pop(shard, None)
        while not self._ending and (rows := await session.take(shard, BATCH)):
            done, aside, held = await self._send(rows)
            await session.settle(shard, done, aside)
            self.counts.relayed += len(done)
            self.counts.set_aside += len(aside)
            for row in aside:
                # The reason quotes ids of the row, so it is logged as an id is. `greendot outbox` always shows it.
                log(log_events.OUTBOX_SET_ASIDE, message=row.id, reason=Id(row.reason))
            if held:
                self._resting[shard] = asyncio.get_running_loop().time() + self._poll_s
                return

    # --- sending ---

    async def _send(self, rows: Sequence[OutboxRow]) -> _Outcome:
        """Send the rows: all notifications together, rooms in parallel, and the messages of a room in order."""
        notices: list[NoticeRow] = []
        rooms: dict[Key, list[MessageRow]] = {}
        aside: list[SetAside] = []
        expired: list[int] = []  # rows that expired while they waited; not delivered
        now = self._clock.now_ms()
        for row in rows:
            match parse_row(row):
                case NoticeRow(id, notice) if notice.expires_at is not None and notice.expires_at <= now:
                    expired.append(id)
                case NoticeRow() as entry:
                    notices.append(entry)
                case MessageRow() as entry:
                    rooms.setdefault((entry.tenant, entry.room), []).append(entry)
                case SetAside() as unfit:
                    aside.append(unfit)
        self.counts.expired += len(expired)
        outcomes = await asyncio.gather(self._notify(notices), *(self._one_by_one(said) for said in rooms.values()))
        return _Outcome(
            expired + [row for outcome in outcomes for row in outcome.done],
            aside + [row for outcome in outcomes for row in outcome.aside],
            any(outcome.held for outcome in outcomes),
        )

    async def _notify(self, entries: Sequence[NoticeRow]) -> _Outcome:
        if len(entries) > 1:
            try:
                await self._delivery.notify([entry.notice for entry in entries])
                return _Outcome([entry.id for entry in entries], [])
            except (StoreUnavailable, EngineUnavailable):
                return _Outcome([], [], held=True)
            except Exception as error:
                log(log_events.OUTBOX_ONE_BY_ONE, rows=len(entries), reason=type(error).__name__)
        return await self._one_by_one(entries)

    async def _one_by_one(self, entries: Sequence[NoticeRow | MessageRow]) -> _Outcome:
        outcome = _Outcome([], [])
        for entry in entries:
            try:
                if isinstance(entry, NoticeRow):
                    await self._delivery.notify([entry.notice])
                else:
                    await self._delivery.append(entry.tenant, entry.room, entry.draft)
                outcome.done.append(entry.id)
            except (StoreUnavailable, EngineUnavailable):
                return outcome._replace(held=True)
            except GreendotError as error:
                outcome.aside.append(SetAside(entry.id, str(error)[:MOST_REASON]))
            except Exception as error:
                log(log_events.OUTBOX_NOT_SENT, error, message=entry.id)
                outcome.aside.append(SetAside(entry.id, f"{type(error).__name__}: {error}"[:MOST_REASON]))
        return outcome


async def _finish(lanes: list[asyncio.Task[None]]) -> None:
    """Wait for the lanes before cancelling them: a message that is written but not published arrives late."""
    if lanes:
        _, late = await asyncio.wait(lanes, timeout=FINISH_S)
        for lane in late:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
