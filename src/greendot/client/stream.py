"""Buffers of events for consumers: bounded, and no record is lost silently."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from types import MappingProxyType

from greendot.client.codec import Failure, StateChanged
from greendot.client.errors import Overrun
from greendot.client.records import held, span
from greendot.protocol.events import Event, InboxBadge, Presence, Signal, TypingCount, TypingStarted, TypingStopped

MAX_SIGNALS = 1_000
MAX_RECORDS = 10_000  # a resume delivers up to 300 per room at once

# Events that a later one replaces, or whose loss is harmless. Everything else must arrive: messages, lost access, lost
# state.
SIGNALS = (Presence, TypingStarted, TypingStopped, TypingCount, Signal, InboxBadge, StateChanged, Failure)


class Buffer:
    """FIFO of events. Over MAX_SIGNALS the oldest signal is dropped; a record never is.

    Over MAX_RECORDS the buffer drops everything, and the next `take` raises Overrun, once. The consumer then knows of
    the loss and can read the history.
    """

    def __init__(self, max_signals: int = MAX_SIGNALS, max_records: int = MAX_RECORDS) -> None:
        self._max_signals = max_signals
        self._max_records = max_records
        self._events: OrderedDict[int, Event] = OrderedDict()  # ticket → event
        self._signals: deque[int] = deque()  # tickets of signals
        self._ticket = 0
        self._overrun = False
        self._before: dict[str, int] = {}  # stream → the number before its oldest waiting record
        self._count: Counter[str] = Counter()  # stream → number of waiting records
        self.waiting: Mapping[str, int] = MappingProxyType(self._before)

    def put(self, event: Event) -> None:
        if self._overrun:
            return
        self._ticket += 1
        self._events[self._ticket] = event
        if isinstance(event, SIGNALS):
            self._signals.append(self._ticket)
            if len(self._signals) > self._max_signals:
                del self._events[self._signals.popleft()]
            return
        if (of := span(event)) is not None:
            self._before.setdefault(of[0], of[1])
            self._count[of[0]] += 1
        if len(self._events) - len(self._signals) > self._max_records:
            self._events.clear()
            self._signals.clear()
            self._count.clear()  # `_before` is kept: a program that ends here gets the records when it starts again
            self._overrun = True

    def take(self) -> Event | None:
        """Return the oldest event; None if there is none. Raise Overrun once after records were dropped."""
        if self._overrun:
            self._overrun = False
            raise Overrun(f"more than {self._max_records} messages were waiting; read them with history()")
        if not self._events:
            return None
        ticket, event = self._events.popitem(last=False)
        if self._signals and self._signals[0] == ticket:
            self._signals.popleft()
        elif (of := span(event)) is not None:
            self._taken(of[0], of[2])
        return event

    def _taken(self, stream: str, number: int) -> None:
        self._count[stream] -= 1
        if self._count[stream]:
            self._before[stream] = number
        else:
            del self._count[stream], self._before[stream]


class EventStream:
    """Async iterator over the client's events since its creation, for one consumer.

    It is bounded like Buffer. It ends when the client is closed, and raises ConnectionRefused if the server closed it.
    The client forgets a stream without references.
    """

    def __init__(self, handled: Callable[[], None] | None = None) -> None:
        self._buffer = Buffer()
        self._handled = handled  # called when the consumer comes for more, and so has finished a record
        self.holding: Mapping[str, int] = {}  # record that the consumer holds; same form as `waiting`
        self._changed = asyncio.Event()
        self._ended = False
        self._error: Exception | None = None

    @property
    def waiting(self) -> Mapping[str, int]:
        """Return stream → the number before the oldest record that the consumer has not taken."""
        return self._buffer.waiting

    def put(self, event: Event) -> None:
        self._buffer.put(event)
        self._changed.set()

    def end(self, error: Exception | None = None) -> None:
        """End the iterator after the remaining events, with `error` if given."""
        self._ended = True
        self._error = error
        self._changed.set()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        if self.holding:
            self.holding = {}
            if self._handled is not None:
                self._handled()
        while True:
            if (event := self._buffer.take()) is not None:
                self.holding = held(event)
                return event
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
