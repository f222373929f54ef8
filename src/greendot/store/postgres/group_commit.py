"""Group commit: concurrent writers share a transaction.

Waiting calls are collected into a batch, written together and answered together. Several batches may be in flight, but
never two that write to the same stream. So one node's writes to a stream are numbered in the order of the calls.

A batch that PostgreSQL refuses is written again call by call, so that only the faulty call fails. A batch that was cut
off, and may have been committed, is written again unchanged: the keys show which rows exist already.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Generic, TypeVar

from msgspec import Struct

from greendot.errors import StoreUnavailable
from greendot.ids import Key
from greendot.store.postgres.pool import Contended, longer

W = TypeVar("W")
R = TypeVar("R")

MOST_CALLS = 512  # in one batch
MOST_ROWS = 10_000  # in one batch, unless a single call has more
MOST_WAITING = 50_000  # rows; above it calls are refused at once
MOST_SKIPPED = 2_000  # waiting calls skipped at most when a batch is put together


class _Call(Struct, Generic[W, R], frozen=True):
    work: W
    streams: frozenset[Key]
    rows: int
    deadline: float
    future: asyncio.Future[R]


class GroupCommit(Generic[W, R]):
    """Queue of calls that are written in shared transactions, at most `flights` of them at once.

    `write` writes several works in one transaction. It returns one result per work, or the error of a work that was
    refused alone. A call that could not be written for `patience_s` fails.
    """

    def __init__(
        self, write: Callable[[list[W]], Awaitable[Sequence[R | Exception]]], flights: int, patience_s: float
    ) -> None:
        self._write = write
        self._patience_s = patience_s
        self._most_flights = flights
        self._waiting: deque[_Call[W, R]] = deque()
        self._rows = 0  # of the waiting calls
        self._busy: Counter[Key] = Counter()  # stream → calls in flight that write to it
        self._flights: set[asyncio.Task[None]] = set()
        self._soon: asyncio.Handle | None = None
        self._open = False

    def open(self) -> None:
        self._open = True

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()  # a call of the kernel in Python 3.11

    async def do(self, work: W, streams: frozenset[Key], rows: int = 1) -> R:
        """Write the work; return its result after the commit.

        StoreUnavailable if too many rows wait, or if the work was not written in time.
        """
        if not self._open:
            raise StoreUnavailable("the store is closed")
        if self._rows and self._rows + rows > MOST_WAITING:
            raise StoreUnavailable("the write queue is full")
        loop = self._loop
        call = _Call(work, streams, rows, loop.time() + self._patience_s, loop.create_future())
        self._waiting.append(call)
        self._rows += rows
        # A call for a busy stream is taken when that flight ends. Other calls are taken together in the next turn.
        if len(self._flights) < self._most_flights and self._busy.keys().isdisjoint(streams):
            self._launch_soon()
        written: R = await call.future
        return written

    async def close(self) -> None:
        """Refuse new calls and wait until all waiting ones are written or have failed."""
        self._open = False
        while self._waiting or self._flights:
            self._launch()
            await asyncio.wait(self._flights)

    def _launch_soon(self) -> None:
        if self._soon is None:
            self._soon = self._loop.call_soon(self._launch)

    def _launch(self) -> None:
        self._soon = None
        while len(self._flights) < self._most_flights and (calls := self._take()):
            flight = self._loop.create_task(self._fly(calls))
            self._flights.add(flight)
            flight.add_done_callback(self._landed)

    def _take(self) -> list[_Call[W, R]]:
        """Take the next batch, oldest first. A call waits behind earlier calls that write to one of its streams."""
        taken: list[_Call[W, R]] = []
        passed: list[_Call[W, R]] = []
        blocked, rows = set(self._busy), 0
        while self._waiting and len(taken) < MOST_CALLS and len(passed) < MOST_SKIPPED:
            call = self._waiting[0]
            if taken and rows + call.rows > MOST_ROWS:
                break
            self._waiting.popleft()
            if blocked.isdisjoint(call.streams):
                taken.append(call)
                rows += call.rows
            else:
                blocked |= call.streams
                passed.append(call)
        self._waiting.extendleft(reversed(passed))
        self._rows -= rows
        for call in taken:
            self._busy.update(call.streams)
        return taken

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        self._launch()

    async def _fly(self, calls: list[_Call[W, R]]) -> None:
        pause = 0.01
        try:
            while calls := self._patient(calls):
                try:
                    calls = await self._attempt(calls)
                except StoreUnavailable:  # the remaining calls are retried with the same keys
                    await asyncio.sleep(pause)
                    pause = longer(pause)
        finally:  # also when the loop ends: no caller may wait for ever
            for call in calls:
                self._done(call, StoreUnavailable("the store was closed"))

    async def _attempt(self, calls: list[_Call[W, R]]) -> list[_Call[W, R]]:
        """Write the calls; return the calls to retry. StoreUnavailable: any of them may have been written or not."""
        try:
            results = await self._write([call.work for call in calls])
        except Exception as error:
            if isinstance(error, StoreUnavailable) and not isinstance(error, Contended):
                raise
            if len(calls) > 1:
                return await self._one_by_one(calls)
            if isinstance(error, Contended):
                raise
            self._done(calls[0], error)
        else:
            for call, result in zip(calls, results, strict=True):
                self._done(call, result)
        return []

    async def _one_by_one(self, calls: list[_Call[W, R]]) -> list[_Call[W, R]]:
        """Write each call alone, so that a faulty or blocked call affects no other; return the calls to retry."""
        left: list[_Call[W, R]] = []
        held: set[Key] = set()  # streams with a call to retry: later calls to them must wait too
        for call in calls:
            try:
                again = [call] if held & call.streams else await self._attempt([call])
            except StoreUnavailable:
                again = [call]
            if again:
                left.append(call)
                held |= call.streams
        self._launch_soon()
        return left

    def _patient(self, calls: list[_Call[W, R]]) -> list[_Call[W, R]]:
        """Fail the calls whose deadline has passed; return the remaining ones."""
        now = self._loop.time()
        for call in calls:
            if call.deadline <= now:
                self._done(call, StoreUnavailable("the write did not finish in time"))
        return [call for call in calls if call.deadline > now]

    def _done(self, call: _Call[W, R], outcome: R | Exception) -> None:
        for stream in call.streams:
            self._busy[stream] -= 1
            if not self._busy[stream]:
                del self._busy[stream]
        if call.future.done():  # its caller was cancelled
            return
        if isinstance(outcome, Exception):
            call.future.set_exception(outcome)
        else:
            call.future.set_result(outcome)
