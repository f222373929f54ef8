from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greendot.engine.messages import Acknowledged, ClusterAnswer, ClusterQuestion, Message, Topic
from greendot.errors import EngineUnavailable
from greendot.node import cluster_rpc
from greendot.node.cluster_rpc import RELEASE_S, WITHIN_S, ClusterRpc
from greendot.visibility.freshness import FRESH_S
from unit.node_parts import NodeParts, in_virtual_time

HERE = Topic("node", "", "here")


class Bus:
    """Bus that records published messages."""

    def __init__(self) -> None:
        self.published: list[tuple[str, Any]] = []
        self.away: set[str] = set()  # nodes that cannot be reached
        self.hung: set[str] = set()  # nodes whose part of the bus does not answer
        self.behind_s = 0.0  # age of the last message that this node has read

    def heard_at(self) -> float:
        return asyncio.get_running_loop().time() - self.behind_s

    async def reach(self, node: str, message: Message) -> bool:
        if node in self.hung:
            await asyncio.get_running_loop().create_future()
        if node in self.away:
            raise EngineUnavailable("away")
        self.publish(Topic("node", "", node), message)
        return True

    def publish(self, topic: Topic, message: Message) -> None:
        self.published.append((topic.name, message))


def rpc() -> tuple[ClusterRpc, Bus]:
    bus = Bus()
    return ClusterRpc(bus, lambda: "here", asyncio.get_running_loop().time), bus  # type: ignore[arg-type]


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


# --- changes of visibility ---


async def confirmed(one: ClusterRpc, *answers: Acknowledged) -> float:
    """Send a change to nodes a and b, which answer. Return the seconds until it is confirmed."""
    began = asyncio.get_running_loop().time()
    call = asyncio.ensure_future(one.confirm({"a", "b"}, command))
    await asyncio.sleep(0.01)
    for answer in answers:
        one.acknowledged(HERE, answer)
    await call
    return asyncio.get_running_loop().time() - began


def arrival(node: str, number: int = 1) -> Acknowledged:
    return Acknowledged(number, node, is_arrival=True)


@in_virtual_time
async def test_a_change_is_confirmed_when_every_node_has_acknowledged(parts: NodeParts) -> None:
    one, _ = rpc()
    assert await confirmed(one, arrival("a"), Acknowledged(1, "a"), arrival("b"), Acknowledged(1, "b")) < 0.1
    assert one.prompt == {"a", "b"}


@in_virtual_time
async def test_a_node_that_reports_no_arrival_is_released_if_it_keeps_the_promise(parts: NodeParts) -> None:
    one, _ = rpc()
    with pytest.raises(EngineUnavailable, match=r"\(b\)"):
        await confirmed(one, Acknowledged(1, "a"))
    one.acknowledged(HERE, arrival("b", 0))  # a greeting before
    took_s = await confirmed(one, Acknowledged(2, "a"))
    assert took_s == pytest.approx(RELEASE_S, abs=0.1)
    assert took_s > FRESH_S


@in_virtual_time
async def test_a_node_that_has_received_the_change_must_apply_it(parts: NodeParts) -> None:
    one, _ = rpc()
    with pytest.raises(EngineUnavailable, match=r"\(b\)"):
        await confirmed(one, Acknowledged(1, "a"), arrival("b"))
    call = asyncio.ensure_future(one.confirm({"b"}, command))
    await asyncio.sleep(RELEASE_S - 0.1)
    one.acknowledged(HERE, arrival("b", 2))
    with pytest.raises(EngineUnavailable, match=r"\(b\)"):
        await call


@in_virtual_time
async def test_no_node_is_released_while_this_node_cannot_send_or_receive(parts: NodeParts) -> None:
    one, bus = rpc()
    one.prompt.add("b")
    bus.away.add("b")
    with pytest.raises(EngineUnavailable, match=r"\(b\)"):
        await confirmed(one, Acknowledged(1, "a"))
    bus.away, bus.hung = set(), {"b"}
    with pytest.raises(EngineUnavailable, match=r"\(b\)"):
        await asyncio.wait_for(one.confirm({"b"}, command), 2 * WITHIN_S + 0.1)
    bus.hung.clear()
    bus.behind_s = RELEASE_S - 0.9
    with pytest.raises(EngineUnavailable, match=r"\(b\)"):
        await confirmed(one, Acknowledged(3, "a"))
    assert one._pending == {}
