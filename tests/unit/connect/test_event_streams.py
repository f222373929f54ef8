"""Requests for event streams of other nodes: forwarded, bounded, answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greendot.connect.event_streams import MOST_FORWARDED, WITHIN_S, EventStreams, Post
from greendot.engine.messages import ClusterAnswer, StreamPost, Topic
from greendot.errors import EngineUnavailable
from greendot.ids import is_stream_id, new_stream_id
from greendot.node.cluster_rpc import ClusterRpc
from greendot.telemetry.metrics import Metrics
from greendot.transport.event_stream import PostOutcome
from unit.node_parts import NodeParts, in_virtual_time, pass_time

KEY, OWN, OTHER = b"a key that all nodes share", "here", "othr"
POST = Post(1, ['{"type":"heartbeat"}'])


class OtherNode:
    """Bus to one other node, which answers when a test calls `answer`."""

    def __init__(self) -> None:
        self.asked: list[StreamPost] = []
        self.published: list[tuple[Topic, Any]] = []
        self.rpc = ClusterRpc(self, lambda: OWN)  # type: ignore[arg-type]
        self.live: set[str] = set()
        self.streams = EventStreams(
            self,  # type: ignore[arg-type]
            self.rpc,
            Metrics(),
            lambda: OWN,
            KEY,
            KEY,
            lambda: self.live,
        )

    async def reach(self, node: str, message: StreamPost) -> bool:
        self.asked.append(message)
        return node == OTHER

    def publish(self, topic: Topic, message: Any) -> None:
        self.published.append((topic, message))

    def answer(self, question: StreamPost, outcome: str) -> None:
        self.rpc.answered(Topic("node", "", OWN), ClusterAnswer(question.number, OTHER, outcome.encode()))


@in_virtual_time
async def test_a_request_is_forwarded_to_the_node_that_the_id_names(parts: NodeParts) -> None:
    other, name = OtherNode(), new_stream_id(OTHER, KEY)
    asking = asyncio.ensure_future(other.streams.post(name, POST))
    await pass_time(0.1)
    (question,) = other.asked
    assert (question.stream, question.seq, question.commands, question.close) == (name, 1, [*POST.commands], None)
    other.answer(question, "busy")
    assert await asking is PostOutcome.BUSY


@in_virtual_time
async def test_a_node_that_does_not_answer_makes_the_client_repeat_the_request(parts: NodeParts) -> None:
    asking = asyncio.ensure_future(OtherNode().streams.post(new_stream_id(OTHER, KEY), POST))
    await pass_time(WITHIN_S + 0.1)
    with pytest.raises(EngineUnavailable):
        await asking


@in_virtual_time
async def test_a_stream_of_a_node_that_is_gone_is_unknown(parts: NodeParts) -> None:
    assert await OtherNode().streams.post(new_stream_id("gone", KEY), POST) is PostOutcome.UNKNOWN


@in_virtual_time
async def test_a_live_node_that_receives_no_messages_makes_the_client_repeat_the_request(parts: NodeParts) -> None:
    other = OtherNode()
    other.live.add("deaf")
    with pytest.raises(EngineUnavailable, match="receives no messages now"):
        await other.streams.post(new_stream_id("deaf", KEY), POST)


@in_virtual_time
async def test_a_made_up_id_is_not_forwarded(parts: NodeParts) -> None:
    other = OtherNode()
    assert await other.streams.post(new_stream_id(OTHER, b"another key"), POST) is PostOutcome.UNKNOWN
    assert other.asked == []


@in_virtual_time
async def test_requests_that_wait_for_other_nodes_are_bounded(parts: NodeParts) -> None:
    other, name = OtherNode(), new_stream_id(OTHER, KEY)
    asking = [asyncio.ensure_future(other.streams.post(name, POST)) for _ in range(MOST_FORWARDED)]
    await pass_time(0.1)
    with pytest.raises(EngineUnavailable, match="wait already"):
        await other.streams.post(name, POST)
    for question in other.asked:
        other.answer(question, "taken")
    assert {*await asyncio.gather(*asking)} == {PostOutcome.TAKEN}


def test_a_forwarded_request_is_answered_to_the_node_that_asks() -> None:
    other = OtherNode()
    other.streams.bus[StreamPost](Topic("node", "", OWN), StreamPost("here-x", 1, [], None, OTHER, 7))
    assert other.published == [(Topic("node", "", OTHER), ClusterAnswer(7, OWN, b"unknown"))]


def test_a_stream_id_proves_its_key() -> None:
    name = new_stream_id("k3Fa", KEY)
    assert name.startswith("k3Fa-")
    assert is_stream_id(name, KEY)
    assert not is_stream_id(name, b"another key")
    assert not is_stream_id(name[:-1], KEY)
    assert not is_stream_id("", KEY)
