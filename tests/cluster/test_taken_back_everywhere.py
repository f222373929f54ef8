"""Change on one node, slow reader on another: pending frames are removed before the change is acknowledged."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from cluster.nodes import LAPSE_S, Clients, counted, now_ms, redis_url, serving
from e2e.narrow import Peer
from e2e.processes import SECRET, Process
from e2e.test_taken_back import FRAMES, numbers, rest
from greendot.auth.tokens import Tokens
from redis_servers import RedisProcess

BODY = "x" * 200
TOGETHER = 100  # messages between two checks of the node


async def come(node: Process, user: str, room: str) -> Peer:
    """Connect a member of the room who then stops reading."""
    client = await Peer.connect(node.port)
    await client.hello(Tokens(SECRET).make(user, now_ms() - 2_000, 3600, jti="j"))
    await client.request(type="room.join", room=room)
    client.stop_reading()
    return client


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("DELETE", "/v1/rooms/den/members/alice", None, None),
        ("POST", "/v1/tokens/revoke", {"user": "alice"}, 4501),
        ("POST", "/v1/tokens/revoke", {"jti": "j"}, 4501),
    ],
    ids=["removed", "revoked", "token revoked"],
)
async def test_with_a_thousand_frames_waiting_on_another_node_none_comes_after_the_acknowledgement(
    tmp_path: Path, redis: RedisProcess, method: str, path: str, body: Any, code: int | None
) -> None:
    unlimited = {"GREENDOT_LIMITS_ENABLED": "false"}
    async with serving(tmp_path, *[redis_url(redis.port)] * 2, **unlimited) as (here, there), Clients() as clients:
        await here.ask("PUT", "/v1/rooms/den", {})
        for user in ("speaker", "witness", "alice"):
            await here.ask("PUT", f"/v1/rooms/den/members/{user}", {})
        speaker, witness = await clients.join(here, "speaker"), await clients.join(there, "witness")
        for member in (speaker, witness):
            await member.request(type="room.join", room="den")
        slow, said = await come(there, "alice", "den"), 0

        async def say(count: int) -> None:
            nonlocal said
            for _ in range(count):
                speaker.send(type="room.send", room="den", body=BODY)
            said += count
            # The other node has delivered it to all members who read.
            await witness.hears("room.message", seq=said)

        try:
            # A client is slow when half of its send buffer is used, 512 KiB: more than 1,000 of these messages.
            while not await counted(there, "realtime_client_slow_total"):
                await say(TOGETHER)
            waiting_from = said - FRAMES
            answer = await here.ask(method, path, body)
            assert answer.status in (200, 204), answer
            await say(1)
            frames, closed = await rest(slow)
        finally:
            await slow.end()
        assert 0 < max(numbers(frames)) < waiting_from
        assert (closed and closed.code) == code
        changes = [frame["data"]["removed"] for frame in frames if frame["type"] == "room.changed"]
        assert changes == ([True] if code is None else [])
        assert witness.closed is None


async def test_a_stopped_node_delivers_nothing_of_a_room_to_a_member_who_was_removed_meanwhile(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with serving(tmp_path, *[redis_url(redis.port)] * 2) as (here, there), Clients() as clients:
        await here.ask("PUT", "/v1/rooms/den", {})
        for user in ("speaker", "witness", "alice"):
            await here.ask("PUT", f"/v1/rooms/den/members/{user}", {})
        speaker = await clients.join(here, "speaker")
        witness, alice = await clients.join(there, "witness"), await clients.join(there, "alice")
        for member in (speaker, witness, alice):
            await member.request(type="room.join", room="den")

        await speaker.watch("alice")
        there.signal(signal.SIGSTOP)
        try:
            for _ in range(2):  # events that wait in the socket of the stopped node
                await speaker.request(type="room.send", room="den", body="secret")
            await speaker.sees("alice", "offline", within_s=LAPSE_S + 5.0)  # the stopped node was declared dead
            assert (await here.ask("DELETE", "/v1/rooms/den/members/alice")).status == 204
            history = asyncio.ensure_future(alice.answer(type="room.history", room="den"))
            await asyncio.sleep(0.1)
        finally:
            there.signal(signal.SIGCONT)
        await witness.hears("room.message", seq=2)
        assert (await history)["code"] == "not_a_member"
        await alice.hears("room.changed", removed=True)
        assert alice.of("room.message") == []
