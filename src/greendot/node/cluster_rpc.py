"""Calls to other nodes over the bus: commands that every node must acknowledge, and queries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from time import monotonic

from greendot.engine.messages import Acknowledged, ClusterAnswer, ClusterQuestion, Message, Topic
from greendot.engine.port import Bus
from greendot.errors import EngineUnavailable

WITHIN_S = 2.0  # time for all nodes to acknowledge a command
RELEASE_S = 3.0  # time after which a node that reported no arrival shows nothing by older facts: FRESH_S and 0.5 s


class _Pending:
    """Call that waits for the answers of nodes."""

    __slots__ = ("answers", "arrived", "count", "done", "silent")

    def __init__(self, nodes: Collection[str]) -> None:
        self.silent = {*nodes}
        self.arrived: set[str] = set()  # nodes that have received the command
        self.count = 0  # changes made by the nodes that have acknowledged
        self.answers: dict[str, bytes] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(self, node: str) -> None:
        self.silent.discard(node)
        if not self.silent and not self.done.done():
            self.done.set_result(None)


class ClusterRpc:
    """Calls of one node, whose name is `name()`. Each message carries this name and a number for the answer."""

    def __init__(self, bus: Bus, name: Callable[[], str], now: Callable[[], float] = monotonic) -> None:
        self.name = name
        self.prompt: set[str] = set()  # nodes that report arrivals, and keep the promise of `visibility.freshness`
        self._bus = bus
        self._now = now  # the clock of `Bus.heard_at`
        self._numbers = 0
        self._pending: dict[int, _Pending] = {}

    async def call(self, nodes: Collection[str], make: Callable[[str, int], Message]) -> int:
        """Send a command; return the number of changes that all nodes made together.

        Raise EngineUnavailable unless every node acknowledges in time. Nodes that did acknowledge have made their
        changes.
        """
        pending = await self._sent(nodes, make, WITHIN_S)
        _raise_for(pending.silent)
        return pending.count

    async def confirm(self, nodes: Collection[str], make: Callable[[str, int], Message]) -> None:
        """Send a command that changes visibility. Return when no node shows users by older facts.

        A node that reports no arrival hangs, or is cut off from the bus. After RELEASE_S it shows no user before it has
        read the change: the promise of `visibility.freshness`. Raise EngineUnavailable if another node does not
        acknowledge in time.
        """
        pending, number = self._begin(nodes)
        try:
            unsent = await self._send(nodes, make, number)
            sent_at = self._now()
            await _wait(pending, WITHIN_S)
            if pending.silent and pending.silent <= self.prompt - pending.arrived - unsent:
                await _wait(pending, RELEASE_S - WITHIN_S)
                # This node must have read its own messages meanwhile: a report may wait to be read.
                if self._bus.heard_at() > sent_at + 1.0 and not pending.silent & pending.arrived:
                    return
        finally:
            del self._pending[number]
        _raise_for(pending.silent)

    async def _send(self, nodes: Collection[str], make: Callable[[str, int], Message], number: int) -> set[str]:
        """Send a command. Return the nodes to which it was not sent for certain."""
        sending = {asyncio.ensure_future(self._bus.reach(node, make(self.name(), number))): node for node in nodes}
        done, late = await asyncio.wait(sending, timeout=WITHIN_S) if sending else (set(), set())
        for task in late:
            task.cancel()
        return {sending[task] for task in (*late, *(task for task in done if task.exception() is not None))}

    async def query(self, nodes: Collection[str], question: bytes, within_s: float) -> dict[str, bytes]:
        """Send a query; return the answers that came in time, by node."""
        return await self.ask(nodes, lambda name, number: ClusterQuestion(question, name, number), within_s)

    async def ask(
        self, nodes: Collection[str], make: Callable[[str, int], Message], within_s: float
    ) -> dict[str, bytes]:
        """Send the question that `make` returns; return the answers that came in time, by node."""
        return (await self._sent(nodes, make, within_s)).answers

    async def ask_one(self, node: str, make: Callable[[str, int], Message], within_s: float) -> bytes | None:
        """Send a question to one node, under any incarnation it has had; return None if there is no such node.

        Raise EngineUnavailable if the node does not answer in time.
        """
        pending, number = self._begin([node])
        try:
            if not await self._bus.reach(node, make(self.name(), number)):
                return None
            await _wait(pending, within_s)
        finally:
            del self._pending[number]
        _raise_for(pending.silent)
        return pending.answers[node]

    async def _sent(self, nodes: Collection[str], make: Callable[[str, int], Message], within_s: float) -> _Pending:
        pending, number = self._begin(nodes)
        try:
            for node in nodes:
                self._bus.publish(Topic("node", "", node), make(self.name(), number))
            await _wait(pending, within_s)
        finally:
            del self._pending[number]
        return pending

    def _begin(self, nodes: Collection[str]) -> tuple[_Pending, int]:
        self._numbers += 1
        pending = self._pending[self._numbers] = _Pending(nodes)
        return pending, self._numbers

    def acknowledged(self, topic: Topic, message: Acknowledged) -> None:
        """Handle a node's acknowledgement of a command, or its report of the arrival."""
        pending = self._pending.get(message.number)
        if message.is_arrival:
            self.prompt.add(message.node)
            if pending is not None:
                pending.arrived.add(message.node)
        elif pending is not None and message.node in pending.silent:
            pending.count += message.count
            pending.answered(message.node)

    def answered(self, topic: Topic, message: ClusterAnswer) -> None:
        """Handle a node's answer to a query."""
        pending = self._pending.get(message.number)
        if pending is not None and message.node in pending.silent:
            pending.answers[message.node] = message.answer
            pending.answered(message.node)


async def _wait(pending: _Pending, within_s: float) -> None:
    """Wait until all nodes have answered, but no longer than `within_s`."""
    if pending.silent:
        await asyncio.wait([pending.done], timeout=within_s)


def _raise_for(silent: Collection[str]) -> None:
    if silent:
        raise EngineUnavailable(f"some nodes did not acknowledge in time ({', '.join(sorted(silent))})")
