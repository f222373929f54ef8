"""Random bus messages, unsigned or signed with the right key: nodes keep running and lose nothing."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from hashlib import blake2b, sha1
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.processes import SECRET, serves_a_fresh_client
from fuzz.live import EXAMPLES, Live, fuzzing
from fuzz.nonsense import JSON, Nonsense
from greendot.engine.messages import AnySent, Entered, Left, NodeMessage, Topic, TopicKind, Typing
from greendot.engine.redis import keys
from greendot.engine.redis.bus_codec import BusCodec, Malformed
from greendot.presence.model import Change
from greendot.testing import Served, serving
from redis_servers import RedisProcess

TOLD = (*get_args(AnySent), Typing, Entered, Left, Change)
TAGS = [kind.__struct_config__.tag for kind in get_args(AnySent)]
LOBBY, ALICE = Topic("room", "default", "lobby"), Topic("watch", "default", "alice")


# --- messages to a node ---


@contextmanager
def peopled() -> Iterator[tuple[asyncio.Runner, Served]]:
    """Run a node in this process with two users in a room who watch each other."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()
        served = runner.run(stack.enter_async_context(serving()))

        async def come() -> None:
            await served.lobby()
            for user in ("alice", "bob"):
                client = await served.joined(user)
                await client.request(type="watch", users=["alice", "bob"])

        runner.run(come())
        try:
            yield runner, served
        finally:
            runner.run(stack.aclose())


def test_a_node_continues_after_any_message_of_nodes_and_scripts(caplog: pytest.LogCaptureFixture) -> None:
    with peopled() as (runner, served):
        registry, node = served.node.registry, served.node.incarnation
        nonsense = Nonsense(["default", "lobby", "alice", "bob", "", node, *registry.sessions, *registry.connections])
        known = st.sampled_from([LOBBY, ALICE, Topic("user", "default", "alice"), Topic("node", "", node)])
        topics = known | st.builds(Topic, nonsense.of(TopicKind), nonsense.names, nonsense.names)

        ours = BusCodec(b"a key for tests, thirty-two long")

        async def hear(topic: Topic, message: Any) -> None:
            served.node.receive(topic, message)
            async with asyncio.timeout(10):  # its effects come to an end
                await served.settle()

        @settings(fuzzing, max_examples=3 * EXAMPLES)  # these examples are fast
        @given(topics, st.one_of(*map(nonsense.of, TOLD)))
        def tell(topic: Topic, message: Any) -> None:
            if isinstance(message, NodeMessage):
                try:
                    ours.reader("channel", topic)(ours.write("channel", message))
                except Malformed:
                    return  # the codec refuses the message
            runner.run(hear(topic, message))

        tell()
        runner.run(served.advance(30))
        runner.run(serves_a_fresh_client(served.port, served.token("newcomer")))
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


# --- messages on a real bus ---


class Forger:
    """Publisher on the channels that a node subscribes to."""

    def __init__(self, redis: RedisProcess, node: str) -> None:
        self._connection = redis.connect()
        self._topics = LOBBY, ALICE, Topic("node", "", node)
        self._ours = BusCodec(blake2b(SECRET.encode(), person=b"greendot-bus").digest())  # as nodes derive it

    def close(self) -> None:
        self._connection.close()

    def channel(self, number: int) -> str:
        return keys.channel("", self._topics[number % len(self._topics)])

    def publish(self, channel: str, data: bytes) -> None:
        assert self._connection.call("PUBLISH", channel, data) == 1, "the channel has no subscriber"

    def signed(self, channel: str, body: bytes) -> bytes:
        """Return a message as a node publishes it."""
        mac = self._ours._mac(channel)
        mac.update(body)
        return b"m" + mac.digest() + body

    def told(self, channel: str, kind: bytes, body: bytes) -> bytes:
        """Return a message as a script publishes it."""
        return kind + sha1(f"{self._ours.script_key}{channel}|".encode() + body).hexdigest().encode() + body


envelopes = st.one_of(
    st.binary(max_size=60),
    JSON.map(msgspec.msgpack.encode),
    # An array with a known tag and random fields; on a node's channel perhaps with a topic.
    st.builds(
        lambda tag, fields, topic: msgspec.msgpack.encode([[tag, *fields], topic]),
        st.sampled_from(TAGS),
        st.lists(JSON, max_size=6),
        st.none() | st.tuples(st.sampled_from(get_args(TopicKind)), st.text(max_size=9), st.text(max_size=9)) | JSON,
    ),
    st.sampled_from([b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\x92\x94\xa1d\xc4\x00\xc0" + b"\x91" * 100_000]),
)
texts = st.text(alphabet="|,;%obif0189aé\0-", max_size=40).map(str.encode) | st.binary(max_size=40)


def test_whatever_is_published_a_node_drops_or_bears_it(tmp_path: Path) -> None:
    with (
        RedisProcess("redis", tmp_path / "redis") as redis,
        Live(tmp_path, "--engine", f"redis://127.0.0.1:{redis.port}") as live,
    ):
        live.do(live.server.ask("PUT", "/v1/rooms/lobby", {"open": True}))
        client = live.do(live.server.client("alice"))
        live.do(client.request(type="room.join", room="lobby"))
        live.do(client.request(type="watch", users=["alice"]))
        forger = Forger(redis, client.welcome["node"])

        @fuzzing
        @given(st.integers(0, 2), envelopes, texts, st.sampled_from([b"c", b"t", b"p", b"x"]), st.randoms())
        def publish(number: int, envelope: bytes, text: bytes, kind: bytes, chance: random.Random) -> None:
            channel = forger.channel(number)
            ours = [forger.signed(channel, envelope), forger.told(channel, kind, text)]
            forged = bytearray(chance.choice(ours))
            forged[chance.randrange(len(forged))] ^= 1 << chance.randrange(8)
            for data in (envelope, text, bytes(forged), *ours):
                forger.publish(channel, data)
            live.has_not_grown()

        try:
            publish()
            assert live.do(metric(live, "realtime_pubsub_invalid_total")) > 0
            assert live.do(metric(live, "realtime_pubsub_gaps_total")) == 0, "the connection to Redis was lost"
        finally:
            forger.close()
            live.do(client.end())


async def metric(live: Live, name: str) -> int:
    text = (await live.server.ask("GET", "/metrics")).body.decode()
    (found,) = (line.split()[1] for line in text.splitlines() if line.startswith(f"{name}{{"))
    return int(float(found))
