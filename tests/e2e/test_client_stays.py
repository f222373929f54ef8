"""Reconnects and token refresh of the Python client, with a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from e2e.processes import until
from greendot.client import Client, FileCursors, QueueFull, SendQueue, body_of, seen_text
from greendot.client.backoff import Backoff
from greendot.protocol.events import NotificationCreated, RoomMessage, TypingStopped
from greendot.testing import Served, serving


def client(served: Served, user: str, **options: Any) -> Client:
    options = {"backoff": Backoff(base_s=0.01, cap_s=0.05), "token": lambda: served.token(user)} | options
    return Client(f"ws://127.0.0.1:{served.port}/v1/connect", **options)


def cut(served: Served, user: str) -> None:
    """Abort all sockets of the user."""
    for connection in served.node.registry.connections_of("default", user):
        connection.abort()


async def test_a_token_is_replaced_before_it_expires_without_a_change_of_state() -> None:
    async with serving() as served:
        given = [served.token("alice", ttl_s=2, rooms=["a"]), served.token("alice", ttl_s=3600, rooms=["b"])]
        async with client(served, "alice", token=lambda: given.pop(0)) as alice:
            states: list[str] = []
            alice.on("state", lambda event: states.append(event.state))
            await alice.join("a")
            await until(lambda: not given)  # about 1.5 s of real time
            await until(lambda: "a" not in alice.cursors["rooms"])  # rooms that only the old token allowed are left
            await alice.join("b")
            await served.advance(60)  # long after the first token expired
            assert (alice.state, states) == ("connected", [])
            assert await alice.rooms() is not None


async def test_a_token_that_could_not_be_replaced_costs_a_reconnect_and_nothing_else() -> None:
    async with serving() as served:
        await served.lobby()
        given = [served.token("alice", ttl_s=2)]

        def token() -> str:
            return given.pop() if given else served.token("alice", ttl_s=3600)

        async with client(served, "alice", token=token) as alice, client(served, "bob") as bob:
            await asyncio.gather(alice.join("lobby"), bob.join("lobby"))
            states: list[str] = []
            alice.on("state", lambda event: states.append(event.state))
            heard: list[int] = []
            alice.on(RoomMessage, lambda event: heard.append(event.seq))
            await served.advance(3)
            await until(lambda: states == ["reconnecting", "connected"])
            await bob.send("lobby", 1)
            await until(lambda: heard == [1])


async def test_parts_of_a_program_watch_the_same_person_without_knowing_of_each_other() -> None:
    async with serving() as served, client(served, "alice"), client(served, "bob") as bob:
        lists = await asyncio.gather(*(bob.watch("alice", f"u{number}") for number in range(200)))
        assert all(people[0].state == "online" for people in lists)
        assert served.node.registry.connections_of("default", "bob")
        for _ in range(199):
            await bob.unwatch("alice")
        async with client(served, "alice", device="phone") as phone:
            await phone.set_status("busy")
            await until(lambda: bob.people["alice"].state == "busy")
            await bob.unwatch("alice")
            assert "alice" not in bob.people
            await phone.set_status("auto")
            (asked,) = await bob.presence("alice")
            assert asked.state == "online"
            assert "alice" not in bob.people


async def test_last_seen_is_by_the_servers_clock() -> None:
    async with serving() as served, client(served, "bob") as bob:
        async with client(served, "alice"):
            await bob.watch("alice")
        await until(lambda: bob.people["alice"].state == "offline")
        gone = bob.people["alice"]
        assert seen_text(gone, bob.now_ms()) == "last seen just now"
        assert seen_text(gone, bob.now_ms() + 300_000) == "last seen 5 minutes ago"


async def test_a_program_that_keeps_its_cursors_in_a_file_receives_every_event_once(tmp_path: Path) -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        told: list[tuple[str, int]] = []
        async with client(served, "alice") as alice:
            await alice.join("lobby")
            for run in range(3):
                for number in range(20):
                    await alice.send("lobby", run * 20 + number)
                kept = FileCursors(tmp_path / "cursors.json", first={"rooms": {"lobby": 0}, "inbox": 0})
                async with client(served, "bob", cursors=kept) as bob, asyncio.timeout(10):
                    async for event in bob.events():
                        if isinstance(event, RoomMessage | NotificationCreated):
                            told.append((event.type, event.seq))
                        if len(told) == 20 * run + 15:
                            break  # five events of this run are still pending
        assert [seq for _, seq in told] == [*range(1, 56)]


async def test_messages_written_offline_wait_within_bounds_and_arrive_once_in_order() -> None:
    async with serving() as served:
        await served.lobby()
        slow = Backoff(base_s=0.3, random=lambda: 1.0)
        async with (
            client(served, "alice", backoff=slow, queue=SendQueue(most=3)) as alice,
            client(served, "bob") as bob,
        ):
            await asyncio.gather(alice.join("lobby"), bob.join("lobby"))
            heard: list[Any] = []
            bob.on(RoomMessage, lambda event: heard.append(body_of(event)))
            cut(served, "alice")
            await until(lambda: alice.state == "reconnecting")
            sending = [asyncio.create_task(alice.send("lobby", number)) for number in range(3)]
            await until(lambda: alice.waiting == 3)
            with pytest.raises(QueueFull):
                await alice.send("lobby", 3)
            await asyncio.gather(*sending)
            await until(lambda: heard == [0, 1, 2])


async def test_many_messages_sent_offline_are_delivered_at_the_rate_the_server_allows() -> None:
    async with serving(limits={"user_sends_per_s": 5}) as served:
        await served.lobby()
        slow = Backoff(base_s=0.3, random=lambda: 1.0)
        async with client(served, "alice", backoff=slow) as alice, client(served, "bob") as bob:
            await asyncio.gather(alice.join("lobby"), bob.join("lobby"))
            heard: list[Any] = []
            bob.on(RoomMessage, lambda event: heard.append(body_of(event)))
            cut(served, "alice")
            await until(lambda: alice.state == "reconnecting")
            sending = [asyncio.create_task(alice.send("lobby", number)) for number in range(40)]
            while not all(task.done() for task in sending):
                await served.advance(0.5)
                await asyncio.sleep(0.01)
            assert [(await task).seq for task in sending] == [*range(1, 41)]
            await until(lambda: heard == [*range(40)])


async def test_the_typing_line_of_a_room_comes_and_goes() -> None:
    async with serving() as served:
        await served.lobby()
        async with (
            client(served, "alice") as alice,
            client(served, "bob") as bob,
            client(served, "carol") as carol,
        ):
            await asyncio.gather(*(one.join("lobby") for one in (alice, bob, carol)))
            stopped: list[str] = []
            carol.on(TypingStopped, lambda event: stopped.append(event.user))
            for _ in range(5):
                await alice.typing("lobby")
                await bob.typing("lobby")
            await until(lambda: len(carol.typers("lobby")) == 2)
            assert carol.typing_text("lobby") in ("Alice and Bob are typing…", "Bob and Alice are typing…")
            await alice.send("lobby", "done")
            await until(lambda: carol.typing_text("lobby") == "Bob is typing…")
            await bob.stop_typing("lobby")
            await until(lambda: carol.typing_text("lobby") == "")
            assert sorted(stopped) == ["alice", "bob"]  # once each
