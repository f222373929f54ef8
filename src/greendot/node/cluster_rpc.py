"""Asking all nodes how things are, and making do with the answers that come.

Beside `acks`: there a change must have been made everywhere, here somebody only looks. A node that does not answer in
time is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import msgspec

from greendot.engine.messages import ClusterAnswer, ClusterQuestion
from greendot.engine.port import Bus, Topic
from greendot.protocol.cluster import Answer, Question, encode, read_question


class _Asking:
    """A question, until it is answered."""

    __slots__ = ("answers", "done", "silent")

    def __init__(self, nodes: Collection[str]) -> None:
        self.silent = {*nodes}
        self.answers: dict[str, bytes] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Survey:
    """One for each node. `reply` is set by the node: what it answers to others, and to itself."""

    def __init__(self, bus: Bus, name: Callable[[], str]) -> None:
        self.reply: Callable[[Question], Answer]
        self._bus = bus
        self._name = name
        self._numbers = 0
        self._waiting: dict[int, _Asking] = {}

    async def ask(self, nodes: Collection[str], question: Question, within_s: float) -> dict[str, bytes]:
        """The answers by node, this one's too, of those that answered in time. `nodes` are the live ones."""
        here = self._name()
        answers = {here: encode(self.reply(question))}
        return answers | await self._ask({*nodes} - {here}, question, within_s)

    async def ask_one(self, node: str, question: Question, within_s: float) -> bytes | None:
        """The answer of this node alone, if it answered in time: nobody else acts on the question."""
        if node == self._name():
            return encode(self.reply(question))
        return (await self._ask({node}, question, within_s)).get(node)

    async def _ask(self, others: set[str], question: Question, within_s: float) -> dict[str, bytes]:
        if not others:
            return {}
        self._numbers += 1
        number, asking = self._numbers, _Asking(others)
        self._waiting[number] = asking
        try:
            text = encode(question)
            for node in others:
                self._bus.publish(Topic("node", "", node), ClusterQuestion(text, self._name(), number))
            async with asyncio.timeout(within_s):
                await asking.done
        except TimeoutError:
            pass
        finally:
            del self._waiting[number]
        return asking.answers

    def asked(self, message: ClusterQuestion, node: str) -> None:
        """Another node wants to know something of this one, which it knows as `node`."""
        try:
            answer = self.reply(read_question(message.question))
        except msgspec.MsgspecError:
            return  # a newer node's question: it makes do without us
        self._bus.publish(Topic("node", "", message.asker), ClusterAnswer(message.number, node, encode(answer)))

    def answered(self, message: ClusterAnswer) -> None:
        asking = self._waiting.get(message.number)
        if asking is not None and message.node in asking.silent:
            asking.silent.discard(message.node)
            asking.answers[message.node] = message.answer
            if not asking.silent and not asking.done.done():
                asking.done.set_result(None)
