"""Frames pending for a slow client are removed when the user loses access to them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from e2e import processes
from e2e.narrow import Peer, connection_of, peer
from e2e.processes import Answer, until
from greendot.testing import Closed, Served, WireClient, serving
from greendot.testing.server import API_KEY

BODY = "x" * 700
FRAMES = 1_000  # fewer than the send buffer holds


async def ask(served: Served, method: str, path: str, body: Any = None) -> Answer:
    return await processes.ask(served.port, method, path, body, authorization=f"Bearer {API_KEY}")


async def stalled(served: Served, room: str = "den") -> tuple[WireClient, Peer]:
    """Return a sender, and a member who no longer reads."""
    await served.node.store.put_room("default", room)
    for user in ("speaker", "alice"):
        await served.node.store.put_member("default", room, user)
    speaker, slow = await served.joined("speaker", room), await peer(served, "alice", room)
    slow.stop_reading()
    return speaker, slow


async def filled(served: Served, speaker: WireClient, room: str = "den") -> int:
    """Send until enough frames are pending. Return the last number that the kernel may have."""
    connection, said = connection_of(served, "alice"), 0
    while connection._outbox is None:
        said += 1
        await speaker.request(type="room.send", room=room, body=BODY)
        assert said < 20_000
    for _ in range(FRAMES):
        await speaker.request(type="room.send", room=room, body=BODY)
    assert len(connection._outbox) >= FRAMES - 1
    assert not connection.closing
    return said


async def rest(client: Peer) -> tuple[list[dict[str, Any]], Closed | None]:
    """Return all frames that can be read, and the close if there was one."""
    client.go_on_reading()
    frames: list[dict[str, Any]] = []
    try:
        while True:
            frames.append(await asyncio.wait_for(client.receive(), 0.5))
    except TimeoutError:
        return frames, None
    except Closed as closed:
        return frames, closed


def numbers(frames: list[dict[str, Any]]) -> list[int]:
    return [frame["data"]["seq"] for frame in frames if frame["type"] == "room.message"]


@pytest.mark.timeout(120)
async def test_a_removed_member_with_a_thousand_frames_waiting_gets_none_of_them() -> None:
    async with serving(limits={"enabled": False}) as served:
        speaker, slow = await stalled(served)
        last = await filled(served, speaker)
        assert (await ask(served, "DELETE", "/v1/rooms/den/members/alice")).status == 204
        await speaker.request(type="room.send", room="den", body="after")
        frames, closed = await rest(slow)
        assert closed is None
        # The frame that was partly written when the kernel's buffer was full stays with the loop.
        assert max(numbers(frames)) <= last + 1
        (changed,) = [frame["data"] for frame in frames if frame["type"] == "room.changed"]
        assert (changed["room"], changed["removed"]) == ("den", True)
        assert frames[-1]["type"] == "room.changed"


@pytest.mark.timeout(120)
async def test_what_the_loop_got_when_a_slow_reader_went_on_is_no_more_than_a_frame() -> None:
    """A client that reads a little and stops again must not put the other pending frames out of reach."""
    async with serving(limits={"enabled": False}) as served:
        speaker, slow = await stalled(served)
        await filled(served, speaker)
        connection = connection_of(served, "alice")
        waited = len(connection._outbox or ())
        while len(connection._outbox or ()) == waited:
            slow.go_on_reading()
            await asyncio.sleep(0)
            slow.stop_reading()
        await asyncio.sleep(0.05)
        assert connection.socket.get_write_buffer_size() <= len(BODY) + 300
        waits = len(connection._outbox or ())
        head = (await served.node.store.room("default", "den")).head  # type: ignore[union-attr]
        assert waits > 0
        assert (await ask(served, "DELETE", "/v1/rooms/den/members/alice")).status == 204
        frames, _ = await rest(slow)
        assert max(numbers(frames)) <= head - waits


async def test_replies_that_wait_are_taken_back_and_each_is_refused_instead() -> None:
    async with serving(limits={"enabled": False}) as served:
        speaker, slow = await stalled(served)
        slow.send(type="room.leave", room="den")
        for _ in range(10):
            await speaker.request(type="room.send", room="den", body="y" * 2_000)
        connection, asked = connection_of(served, "alice"), 0

        async def more(count: int) -> None:
            nonlocal asked
            commands = served.node.metrics.realtime_commands_total + count
            for _ in range(count):
                asked += 1
                slow.send(type="room.history", room="den", limit=10, id=asked)
            await until(lambda: served.node.metrics.realtime_commands_total >= commands)
            await served.settle()

        while connection._outbox is None:
            await more(1)
            assert asked < 2_000
        await more(20)
        assert (await ask(served, "DELETE", "/v1/rooms/den/members/alice")).status == 204
        frames, _ = await rest(slow)
        told = [frame["id"] for frame in frames if frame["type"] == "reply"]
        refused = [frame["id"] for frame in frames if frame["type"] == "error"]
        assert {frame["code"] for frame in frames if frame["type"] == "error"} == {"not_a_member"}
        assert refused
        assert sorted(told + refused) == [*range(1, asked + 1)]


async def test_what_a_returning_member_had_missed_is_taken_back_too() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.node.store.put_room("default", "den")
        for user in ("speaker", "alice"):
            await served.node.store.put_member("default", "den", user)
        speaker = await served.joined("speaker", "den")
        for _ in range(300):
            await speaker.request(type="room.send", room="den", body="y" * 13_000)
        slow = await Peer.connect(served.port)
        served._clients.append(slow)
        slow.stop_reading()
        slow.send(type="hello", token=served.token("alice"), resume={"rooms": {"den": 0}})
        await until(lambda: bool([*served.node.registry.connections_of("default", "alice")]))
        connection = connection_of(served, "alice")
        await until(lambda: connection._outbox is not None)
        waits = len(connection._outbox or ())
        assert waits > 10
        assert (await ask(served, "DELETE", "/v1/rooms/den/members/alice")).status == 204
        frames, _ = await rest(slow)
        assert frames[0]["type"] == "welcome"
        assert max(numbers(frames)) <= 300 - waits
        assert frames[-1]["data"].get("removed") is True


async def test_history_read_while_the_member_is_removed_is_not_sent() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.node.store.put_room("default", "den")
        await served.node.store.put_member("default", "den", "alice")
        alice = await served.client("alice")
        read = served.node.store.room_page
        removed = asyncio.Event()

        async def slowly(*arguments: Any, **named: Any) -> Any:
            found = await read(*arguments, **named)
            await removed.wait()
            return found

        served.node.store.room_page = slowly  # type: ignore[method-assign]
        alice.send(type="room.history", room="den", id=1)
        await asyncio.sleep(0.05)
        assert (await ask(served, "DELETE", "/v1/rooms/den/members/alice")).status == 204
        removed.set()
        answer = await alice.receive()
        assert (answer["type"], answer["code"]) == ("error", "not_a_member")
