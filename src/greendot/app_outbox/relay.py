"""Sends what is in the outbox: at least once to the store, which by the rows' keys is once; in order per stream.

Each node has one. It holds a share of the shards and works on each that has rows, in a lane of its own: read, send,
remove. Who is killed in between leaves rows that another sends again, under the same keys. Rows that can never be sent
are set aside, and those behind them go on; what cannot be sent now holds up its stream only.
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

BATCH = 256  # rows read at once; all inboxes among them are written in one commit
FINISH_S = 2.0  # what is being written when the relay is told to end may take so long
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
MOST_REASON = 500  # characters
COUNT_S = 10.0  # between two counts of what waits
MOST_COUNTED = 100_000  # rows: a backlog is not to be held up by being counted


class Publisher(Protocol):
    """The way everything is sent: written first, then told to those who are connected."""

    async def append(self, tenant: str, room: str, draft: Draft) -> object:
        """Refused if there is no such room."""
        ...

    async def notify(self, notices: Sequence[Notice]) -> object:
        """All are written, or none."""
        ...


class _Outcome(NamedTuple):
    done: list[int]
    aside: list[SetAside]
    held: bool = False  # something could not be sent now


class RelayCounts(Struct):
    """What a relay has done, and how it is."""

    up: bool = False
    shards: int = 0
    relayed: int = 0
    set_aside: int = 0
    expired: int = 0
    waiting: int | None = 0  # rows, as last counted, MOST_COUNTED at most; None: that took too long
    oldest_s: float = 0.0


class Relay:
    """Runs from `start` to `close`; whatever happens to the outbox or the store, it goes on when they are back."""

    def __init__(self, outbox: Outbox, delivery: Publisher, clock: Clock, poll_s: float = 1.0) -> None:
        self._outbox = outbox
        self._delivery = delivery
        self._clock = clock
        self._poll_s = poll_s
        self._wake = asyncio.Event()
        self._resting: dict[int, float] = {}  # shards with something that could not be sent, and until when
        self._ending = False
        self._trouble: str | None = None
        self._task: asyncio.Task[None] | None = None
        self.counts = RelayCounts()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """What is being sent is finished; the rest is left to others."""
        self._ending = True
        self._wake.set()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=2 * FINISH_S)
            for task in late:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def items(self) -> dict[str, float]:
        """For `/metrics`."""
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
                log(log_events.WORK_FAILED, error, work="the relay of the outbox")
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
        """Hold a share of the shards and start a lane for each that has rows, until told to end."""
        lanes: dict[int, asyncio.Task[None]] = {}
        loop, mine, next_claim = asyncio.get_running_loop(), frozenset[int](), 0.0
        next_count = loop.time() + COUNT_S  # the work comes first, in every session
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
                    # What was written while a lane ended is not looked for by it: look again then.
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
                # Why quotes ids of the row, so it is logged as they are; `greendot outbox` shows it in any case.
                log(log_events.OUTBOX_SET_ASIDE, message=row.id, reason=Id(row.reason))
            if held:
                self._resting[shard] = asyncio.get_running_loop().time() + self._poll_s
                return

    # --- sending ---

    async def _send(self, rows: Sequence[OutboxRow]) -> _Outcome:
        """Inboxes together, rooms beside each other, one message after the other in each."""
        notices: list[NoticeRow] = []
        rooms: dict[Key, list[MessageRow]] = {}
        aside: list[SetAside] = []
        expired: list[int] = []  # while they waited: nobody is to hear of them any more
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
    """Let them end by themselves: a message that is written and not told would be heard of late."""
    if lanes:
        _, late = await asyncio.wait(lanes, timeout=FINISH_S)
        for lane in late:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
