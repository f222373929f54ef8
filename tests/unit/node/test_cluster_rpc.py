from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greendot.engine.messages import Acknowledged, ClusterAnswer, ClusterQuestion, Message, Topic
from greendot.errors import EngineUnavailable
from greendot.node import cluster_rpc
from greendot.node.cluster_rpc import ClusterRpc

HERE = Topic("node", "", "here")


class Bus:
    """Bus that records published messages."""

    def __init__(self) -> None:
        self.published: list[tuple[str, Any]] = []

    def publish(self, topic: Topic, message: Message) -> None:
        self.published.append((topic.name, message))


def rpc() -> tuple[ClusterRpc, Bus]:
    bus = Bus()
    return ClusterRpc(bus, lambda: "here"), bus  # type: ignore[arg-type]


def command(asker: str, number: int) -> Message:
    return Acknowledged(number, asker, 0)  # any message with a number and a node


async def test_a_call_is_done_when_every_node_has_acknowledged_and_adds_their_counts() -> None:
    one, bus = rpc()
    call = asyncio.ensure_future(one.call({"a", "b"}, command))
    await asyncio.sleep(0)
    assert sorted(bus.published) == [("a", Acknowledged(1, "here", 0)), ("b", Acknowledged(1, "here", 0))]
    one.acknowledged(HERE, Acknowledged(1, "a", 2))
    one.acknowledged(HERE, Acknowledged(1, "a", 2))  # a duplicate, which counts once
    one.acknowledged(HERE, Acknowledged(1, "c", 9))  # a node that was not called
    one.acknowledged(HERE, Acknowledged(7, "b", 9))  # the acknowledgement of another call
    await asyncio.sleep(0)
    assert not call.done()
    one.acknowledged(HERE, Acknowledged(1, "b", 3))
    assert await call == 5


async def test_a_call_to_no_nodes_returns_at_once() -> None:
    one, bus = rpc()
    assert await one.call(set(), command) == 0
    assert await one.query(set(), b"{}", 1.0) == {}
    assert bus.published == []


async def test_a_call_fails_and_names_the_nodes_that_did_not_acknowledge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_rpc, "WITHIN_S", 0.0)
    one, _ = rpc()
    with pytest.raises(EngineUnavailable, match=r"\(a, b\)"):
        await one.call({"b", "a"}, command)
    one.acknowledged(HERE, Acknowledged(1, "a", 1))  # too late: no call waits for it


async def test_a_query_returns_the_answers_that_came_in_time() -> None:
    one, bus = rpc()
    query = asyncio.ensure_future(one.query({"a", "b"}, b"{}", 0.01))
    await asyncio.sleep(0)
    assert {message for _, message in bus.published} == {ClusterQuestion(b"{}", "here", 1)}
    one.answered(HERE, ClusterAnswer(1, "a", b"1"))
    one.answered(HERE, ClusterAnswer(1, "a", b"2"))
    one.answered(HERE, ClusterAnswer(2, "b", b"3"))
    assert await query == {"a": b"1"}


async def test_each_call_has_a_number_of_its_own() -> None:
    one, _ = rpc()
    calls = [asyncio.ensure_future(one.query({"a"}, b"{}", 0.01)) for _ in range(2)]
    await asyncio.sleep(0)
    one.answered(HERE, ClusterAnswer(2, "a", b"second"))
    one.answered(HERE, ClusterAnswer(1, "a", b"first"))
    assert await asyncio.gather(*calls) == [{"a": b"first"}, {"a": b"second"}]
