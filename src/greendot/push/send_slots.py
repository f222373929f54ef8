"""Send slots of one provider: a number for each host, and few for hosts that have not answered yet.

Users choose the hosts of Web Push. A host is proven once it has answered, and has slots of its own from then on. All
unproven hosts share a few slots in turn, so that thousands of silent hosts cannot take the slots of proven ones.
"""

from __future__ import annotations

import asyncio
from collections import deque


class HostSlots:
    """Sends to one host of a provider."""

    def __init__(self, *, is_known: bool) -> None:
        self.is_known = is_known  # chosen by the operator, or a public push service: always proven
        self.is_proven = is_known
        self.under_way = 0
        self.waiting: deque[asyncio.Future[bool]] = deque()  # result: whether the slot is one of a proven host


class Slots:
    """Slots for the sends of one channel."""

    def __init__(self, *, each: int, unproven: int, unproven_each: int) -> None:
        self._each = each  # concurrent sends to a proven host
        self._unproven = unproven  # concurrent sends to all unproven hosts together
        self._unproven_each = unproven_each  # concurrent sends to one unproven host
        self._unproven_under_way = 0
        self._queue: dict[HostSlots, None] = {}  # unproven hosts with waiting sends, in turn

    def is_free(self, host: HostSlots) -> bool:
        """Return whether a send to the host can begin now."""
        if host.is_proven:
            return host.under_way < self._each
        return host.under_way < self._unproven_each and self._unproven_under_way < self._unproven

    async def acquire(self, host: HostSlots) -> bool:
        """Wait for a slot; return the value that `release` needs."""
        if not host.waiting and self.is_free(host):
            return self._take(host)
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        host.waiting.append(turn)
        if not host.is_proven:
            self._queue[host] = None
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(host, turn.result())  # the slot was given and cannot be used
            elif turn in host.waiting:
                host.waiting.remove(turn)
            raise

    def release(self, host: HostSlots, was_proven: bool) -> None:
        """Give the slot back; the next waiting send gets it."""
        host.under_way -= 1
        self._unproven_under_way -= not was_proven
        self._hand_out(host)

    def prove(self, host: HostSlots, is_proven: bool) -> None:
        """Record whether the host answered its last call."""
        if not host.is_known and host.is_proven != is_proven:
            host.is_proven = is_proven
            if host.waiting and not is_proven:
                self._queue[host] = None
            self._hand_out(host)

    def _take(self, host: HostSlots) -> bool:
        host.under_way += 1
        self._unproven_under_way += not host.is_proven
        return host.is_proven

    def _hand_out(self, host: HostSlots) -> None:
        while host.is_proven and host.waiting and self.is_free(host):
            self._give(host)
        for _ in range(len(self._queue)):
            if self._unproven_under_way >= self._unproven:
                return
            first = next(iter(self._queue))
            del self._queue[first]
            if first.waiting and not first.is_proven:
                if self.is_free(first):
                    self._give(first)
                self._queue[first] = None  # to the end of the queue

    def _give(self, host: HostSlots) -> None:
        """Give a slot to the first waiting send, unless the send was cancelled."""
        turn = host.waiting.popleft()
        if not turn.done():
            turn.set_result(self._take(host))
