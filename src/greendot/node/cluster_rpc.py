"""Calls to other nodes over the bus: commands that every node must acknowledge, and queries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from greendot.engine.messages import Acknowledged, ClusterAnswer, ClusterQuestion, Message, Topic
from greendot.engine.port import Bus
from greendot.errors import EngineUnavailable

WITHIN_S = 2.0  # time for all nodes to acknowledge a command


class _Pending:
    """Call that waits for the answers of nodes."""

    __slots__ = ("answers", "count", "done", "silent")

    def __init__(self, nodes: Collection[str]) -> None:
        self.silent = {*nodes}
        self.count = 0  # changes made by the nodes that have acknowledged
        self.answers: dict[str, bytes] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(self, node: str) -> None:
        self.silent.discard(node)
        if not self.silent and not self.done.done():
            self.done.set_result(None)


class ClusterRpc:
    """Calls of one node, whose name is `name()`. Each message carries this name and a number for the answer."""

    def __init__(self, bus: Bus, name: Callable[[], str]) -> None:
        self.name = name
        self._bus = bus
        self._numbers = 0
        self._pending: dict[int, _Pending] = {}

    async def call(self, nodes: Collection[str], make: Callable[[str, int], Message]) -> int:
        """Send a command; return the number of changes that all nodes made together.

        Raise EngineUnavailable unless every node acknowledges in time. Nodes that did acknowledge have made their
        changes.
        """
        pending = await self._sent(nodes, make, WITHIN_S)
        if pending.silent:
            silent = ", ".join(sorted(pending.silent))
            raise EngineUnavailable(f"some nodes did not acknowledge in time ({silent})")
        return pending.count

    async def query(self, nodes: Collection[str], question: bytes, within_s: float) -> dict[str, bytes]:
        """Send a query; return the answers that came in time, by node."""
        pending = await self._sent(nodes, lambda name, number: ClusterQuestion(question, name, number), within_s)
        return pending.answers

    async def _sent(self, nodes: Collection[str], make: Callable[[str, int], Message], within_s: float) -> _Pending:
        pending = _Pending(nodes)
        if not nodes:
            return pending
        self._numbers += 1
        number = self._numbers
        self._pending[number] = pending
        try:
            for node in nodes:
                self._bus.publish(Topic("node", "", node), make(self.name(), number))
            async with asyncio.timeout(within_s):
                await pending.done
        except TimeoutError:
            pass
        finally:
            del self._pending[number]
        return pending

    def acknowledged(self, topic: Topic, message: Acknowledged) -> None:
        """Handle a node's acknowledgement of a command."""
        pending = self._pending.get(message.number)
        if pending is not None and message.node in pending.silent:
            pending.count += message.count
            pending.answered(message.node)

    def answered(self, topic: Topic, message: ClusterAnswer) -> None:
        """Handle a node's answer to a query."""
        pending = self._pending.get(message.number)
        if pending is not None and message.node in pending.silent:
            pending.answers[message.node] = message.answer
            pending.answered(message.node)
