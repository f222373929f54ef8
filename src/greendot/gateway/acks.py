"""Asking other nodes for something and waiting until all have said that it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from greendot.engine.base import Acknowledged, Bus, Message, Topic
from greendot.errors import EngineUnavailable

WITHIN_S = 2.0


class Acks:
    """One for each node. A message that asks carries the name of the node to answer and a number to answer under."""

    def __init__(self, bus: Bus, name: Callable[[], str]) -> None:
        self._bus = bus
        self._name = name  # this node's
        self._numbers = 0
        self._waiting: dict[int, tuple[set[str], asyncio.Future[None]]] = {}  # nodes that have not answered

    async def ask(self, nodes: Collection[str], make: Callable[[str, int], Message]) -> None:
        """EngineUnavailable unless every node answers in time; those that did have done it."""
        if not nodes:
            return
        self._numbers += 1
        number, done = self._numbers, asyncio.get_running_loop().create_future()
        self._waiting[number] = {*nodes}, done
        try:
            for node in nodes:
                self._bus.publish(Topic("node", "", node), make(self._name(), number))
            async with asyncio.timeout(WITHIN_S):
                await done
        except TimeoutError:
            silent = ", ".join(sorted(self._waiting[number][0]))
            raise EngineUnavailable(f"not all nodes have answered in time ({silent})") from None
        finally:
            del self._waiting[number]

    def acknowledged(self, message: Acknowledged) -> None:
        nodes, done = self._waiting.get(message.number, (None, None))
        if nodes is not None and done is not None:
            nodes.discard(message.node)
            if not nodes and not done.done():
                done.set_result(None)
