"""Asking other nodes for something and waiting until all have said that it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from greendot.engine.port import Acknowledged, Bus, Message, Topic
from greendot.errors import EngineUnavailable

WITHIN_S = 2.0


class _Question:
    """What is to be answered."""

    def __init__(self, nodes: Collection[str]) -> None:
        self.silent = {*nodes}
        self.count = 0  # of what was done, by those that have answered
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Acks:
    """One for each node. A message that asks carries the name of the node to answer and a number to answer under."""

    def __init__(self, bus: Bus, name: Callable[[], str]) -> None:
        self._bus = bus
        self._name = name  # this node's
        self._numbers = 0
        self._waiting: dict[int, _Question] = {}

    async def ask(self, nodes: Collection[str], make: Callable[[str, int], Message]) -> int:
        """How much all nodes together have done. EngineUnavailable unless every node answers in time; those that did
        have done it."""
        if not nodes:
            return 0
        self._numbers += 1
        number, question = self._numbers, _Question(nodes)
        self._waiting[number] = question
        try:
            for node in nodes:
                self._bus.publish(Topic("node", "", node), make(self._name(), number))
            async with asyncio.timeout(WITHIN_S):
                await question.done
        except TimeoutError:
            silent = ", ".join(sorted(question.silent))
            raise EngineUnavailable(f"not all nodes have answered in time ({silent})") from None
        finally:
            del self._waiting[number]
        return question.count

    def acknowledged(self, message: Acknowledged) -> None:
        question = self._waiting.get(message.number)
        if question is not None and message.node in question.silent:
            question.silent.discard(message.node)
            question.count += message.count
            if not question.silent and not question.done.done():
                question.done.set_result(None)
