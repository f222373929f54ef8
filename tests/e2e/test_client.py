"""Python client with a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from e2e.processes import SECRET, Process, running
from greendot.auth.tokens import Tokens
from greendot.client import Client, CommandRefused, ConnectionRefused, Cursors, Reactions, Truncated, body_of
from greendot.client.backoff import Backoff
from greendot.clock import SystemClock
from greendot.engine.messages import Part, Topic
from greendot.protocol.events import (
    NotificationCreated,
    NotificationUpdated,
    Presence,
    RoomChanged,
    RoomMessage,
    Signal,
    TypingStarted,
)
from greendot.store.audit import AuditNote
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft
from greendot.testing import Served, serving
from redis_servers import free_port

LOBBY = Topic("room", "default", "lobby")


def client(served: Served, user: str, **options: Any) -> Client:
    url = f"ws://127.0.0.1:{served.port}/v1/connect"
    return Client(url, lambda: served.token(user), backoff=Backoff(base_s=0.01, cap_s=0.05), **options)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (a condition of the client's state, which has no event)
            await asyncio.sleep(0.005)


async def next_of(events: Any, kind: type) -> Any:
    async with asyncio.timeout(10):
        async for event in events:
            if isinstance(event, kind):
                return event
    raise AssertionError(f"the event stream ended without a {kind.__name__}")


async def test_two_people_see_each_other_type_and_talk() -> None:
    async with serving() as served:
        await served.lobby()
        async with client(served, "alice", device="laptop") as alice, client(served, "bob") as bob:
            (seen,) = await bob.watch("alice")
            assert (seen.state, seen.devices) == ("online", ["laptop"])
            await asyncio.gather(alice.join("lobby"), bob.join("lobby"))
            events = bob.events()
            await alice.typing("lobby")
            assert (await next_of(events, TypingStarted)).user == "alice"
            assert bob.typers("lobby") == {"alice": "Alice"}
            reply = await alice.send("lobby", {"text": "hi"})
            message = await next_of(events, RoomMessage)
            assert (message.seq, bytes(message.body)) == (reply.seq, b'{"text":"hi"}')
            assert bob.typers("lobby") == {}
            await alice.signal("cursor", room="lobby", body={"x": 1}, key="me")
            assert (await next_of(events, Signal)).kind == "cursor"
            await alice.set_status("busy", text="away")
            assert (await next_of(events, Presence)).state == "busy"
            assert bob.people["alice"].status_text == "away"


async def test_a_lost_socket_is_found_again_with_its_watches_and_rooms_and_what_was_missed() -> None:
    async with serving() as served:
        await served.lobby()
        async with client(served, "alice") as alice, client(served, "bob") as bob, client(served, "carol") as carol:
            await bob.watch("carol")
            await asyncio.gather(alice.join("lobby"), bob.join("lobby"))
            await carol.watch("bob")
            told: list[str] = []
            carol.on("presence.changed", lambda event: told.append(event.state))
            heard: list[int] = []
            bob.on("room.message", lambda event: heard.append(event.seq))
            await alice.send("lobby", 1)
            await until(lambda: heard == [1])
            session = bob.welcome.session
            states: list[str] = []
            bob.on("state", lambda event: states.append(event.state))
            for connection in served.node.registry.connections_of("default", "bob"):
                connection.abort()
            await alice.send("lobby", 2)
            await until(lambda: states == ["reconnecting", "connected"])
            await alice.send("lobby", 3)
            await until(lambda: heard == [1, 2, 3])
            assert bob.welcome.session == session
            assert bob.welcome.resumed
            await carol.set_status("busy")
            await until(lambda: bob.people["carol"].state == "busy")
            assert told == []


def cut(served: Served, user: str) -> None:
    """Abort all sockets of the user."""
    for connection in served.node.registry.connections_of("default", user):
        connection.abort()


async def write(served: Served, first: int, last: int, *, heard: bool = True) -> None:
    """Write messages of another user. The node is notified of them only with the flag."""
    append = served.node.room_messages.append if heard else served.node.store.append
    for number in range(first, last + 1):
        await append("default", "lobby", Draft("carol", "Carol", b"%d" % number, f"w{number}", 0))


async def notify(served: Served, user: str, first: int, last: int) -> None:
    notices = [Notice("default", user, "news", b"%d" % number, f"k{number}", 0) for number in range(first, last + 1)]
    await served.node.store.notify(notices)


async def test_reactions_missed_without_a_socket_are_counted_once() -> None:
    async with serving() as served:
        await served.lobby()
        async with client(served, "alice") as alice, client(served, "bob") as bob:
            await alice.join("lobby")
            seq = (await alice.send("lobby", "hello")).seq
            await alice.react("lobby", seq, "+")
            live, states = Reactions("bob"), list[str]()
            bob.on("state", lambda event: states.append(event.state))
            for message in (await bob.join("lobby", history=10)).messages:
                live.apply(message)
            bob.on(RoomMessage, live.apply)
            assert await bob.react("lobby", seq, "+") == await bob.react("lobby", seq, "+")
            await until(lambda: [of.count for of in live.of(seq)] == [2])
            cut(served, "bob")
            await alice.react("lobby", seq, "+", on=False)
            await alice.react("lobby", seq, "!")
            await until(lambda: len(live.of(seq)) == 2 and states == ["reconnecting", "connected"])
            counted = [(of.reaction, of.count, of.mine) for of in live.of(seq)]
            assert counted == [("+", 1, True), ("!", 1, False)]
            (message, *_) = await bob.history("lobby")
            assert message.reactions is not UNSET
            assert [(of.reaction, of.count, of.mine) for of in message.reactions] == counted


async def test_messages_sent_while_sockets_are_lost_are_written_and_received_once() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        async with client(served, "alice") as alice, client(served, "bob") as bob:
            await asyncio.gather(alice.join("lobby"), bob.join("lobby"))
            heard: list[int] = []
            bob.on("room.message", lambda event: heard.append(event.seq))
            sending = [asyncio.create_task(alice.send("lobby", number)) for number in range(60)]
            for turn in range(12):
                cut(served, "bob" if turn % 3 else "alice")
                await until(lambda turn=turn: sum(task.done() for task in sending) >= 5 * turn)
            replies = await asyncio.gather(*sending)
            await until(lambda: len(heard) >= 60)
            assert heard == [*range(1, 61)]
            assert sorted(reply.seq for reply in replies) == heard
            async with client(served, "carol") as carol:  # this socket was not aborted
                written = [body_of(message) async for page in carol.pages("lobby", after=0) for message in page]
            assert sorted(written) == [*range(60)]


async def test_messages_sent_while_the_server_is_killed_repeatedly_are_written_and_received_once(
    tmp_path: Path,
) -> None:
    port = free_port()
    token = Tokens(SECRET).make
    heard: list[RoomMessage] = []
    written: list[list[int]] = []

    def person(user: str) -> Client:
        url, backoff = f"ws://127.0.0.1:{port}/v1/connect", Backoff(base_s=0.01, cap_s=0.05)
        return Client(url, token(user, SystemClock().now_ms(), 3600), backoff=backoff)

    async def speak(first: int) -> list[int]:
        return [(await alice.send("lobby", number)).seq for number in range(first, 200, 10)]

    def server() -> AbstractAsyncContextManager[Process]:
        return running(tmp_path, "--dev", "--port", str(port), GREENDOT_LIMITS_ENABLED="false")

    async with AsyncExitStack() as people:
        async with server():
            alice, bob = [await people.enter_async_context(person(user)) for user in ("alice", "bob")]
            await asyncio.gather(alice.join("lobby"), bob.join("lobby"))
            bob.on("room.message", heard.append)
            room_messages = [asyncio.create_task(speak(first)) for first in range(10)]
            await until(lambda: len(heard) >= 20)
        for enough in (80, 140, 200):
            async with server():
                await until(lambda enough=enough: len(heard) >= enough)
                if enough == 200:
                    written = await asyncio.gather(*room_messages)
    assert [message.seq for message in heard] == [*range(1, 201)]
    assert sorted(body_of(message) for message in heard) == [*range(200)]
    assert sorted(seq for numbers in written for seq in numbers) == [*range(1, 201)]


async def test_edits_and_deletions_refer_to_the_message_and_reads_are_published_to_other_devices() -> None:
    async with serving() as served:
        await served.lobby()
        async with (
            client(served, "alice") as alice,
            client(served, "bob") as bob,
            client(served, "bob", device="phone") as phone,
        ):
            await asyncio.gather(alice.join("lobby"), bob.join("lobby"))
            events = bob.events()
            sent = await alice.send("lobby", "helo")
            await alice.edit("lobby", sent.seq, "hello", key="e")
            await alice.edit("lobby", sent.seq, "hello", key="e")
            await alice.delete("lobby", sent.seq)
            heard = [await next_of(events, RoomMessage) for _ in range(3)]
            assert [(message.op, message.ref) for message in heard] == [(None, None), ("edit", 1), ("delete", 1)]
            with pytest.raises(CommandRefused, match="only the author"):
                await bob.delete("lobby", sent.seq)
            elsewhere = phone.events()
            assert await bob.read("lobby", 2) == 1
            changed = await next_of(elsewhere, RoomChanged)
            assert (changed.read, changed.unread) == (2, 1)


async def test_a_program_restarted_with_its_cursors_receives_exactly_what_it_missed() -> None:
    async with serving() as served:
        await served.lobby()
        handled: list[tuple[str, int]] = []
        cursors: Cursors = {"rooms": {"lobby": 0}, "inbox": 0}
        for run, upto in enumerate((50, 190, 330)):
            await write(served, 100 * run + 1, 100 * run + 100)
            await notify(served, "bob", 10 * run + 1, 10 * run + 10)
            async with client(served, "bob", cursors=cursors) as bob, asyncio.timeout(10):
                async for event in bob.events():
                    if isinstance(event, RoomMessage | NotificationCreated):
                        handled.append((event.type, event.seq))
                        cursors = json.loads(json.dumps(bob.cursors))
                    if len(handled) == upto:
                        break  # stop while more events are pending
        messages = [seq for kind, seq in handled if kind == "room.message"]
        notifications = [seq for kind, seq in handled if kind == "notification.created"]
        assert messages == [*range(1, len(messages) + 1)]
        assert notifications == [*range(1, len(notifications) + 1)]
        assert len(handled) == 330


@pytest.mark.parametrize("restarted", [True, False])
async def test_a_client_that_was_away_for_long_receives_all_messages_or_the_size_of_the_gap(restarted: bool) -> None:
    async with serving() as served:
        await served.lobby()
        async with client(served, "bob") as bob:
            await bob.join("lobby")
            events = bob.events()
            if restarted:
                await bob.close()
            else:
                cut(served, "bob")
            await write(served, 1, 700)
            if not restarted:
                assert [(await next_of(events, RoomMessage)).seq for _ in range(700)] == [*range(1, 701)]
        async with client(served, "bob", cursors={"rooms": {"lobby": 0}, "inbox": None}) as again:
            events = again.events()
            assert [(await next_of(events, RoomMessage)).seq for _ in range(700)] == [*range(1, 701)]
        await write(served, 701, 3001)
        async with client(served, "bob", cursors={"rooms": {"lobby": 0}, "inbox": None}) as far:
            skipped = await next_of(far.events(), Truncated)
            assert (skipped.stream, skipped.after, skipped.head) == ("room:lobby", 0, 3001)
            pages = [page async for page in far.pages("lobby", after=2000)]
            assert [message.seq for page in pages for message in page] == [*range(2001, 3002)]


async def test_what_the_server_leaves_out_of_a_live_room_is_fetched() -> None:
    async with serving() as served:
        await served.lobby()
        async with client(served, "alice") as alice, client(served, "bob") as bob:
            await asyncio.gather(alice.join("lobby"), bob.join("lobby"))
            events = bob.events()
            await write(served, 1, 800, heard=False)
            await served.node.rooms.delivery.compare(Part())  # sends 300 messages, then a resync
            assert (await alice.send("lobby", "on top")).seq == 801
            assert [(await next_of(events, RoomMessage)).seq for _ in range(801)] == [*range(1, 802)]


async def test_an_inbox_on_two_devices() -> None:
    async with serving() as served:
        await notify(served, "bob", 1, 3)
        async with client(served, "bob") as laptop, client(served, "bob", device="phone") as phone:
            assert (laptop.inbox.unread, phone.inbox.unseen) == (3, 3)
            events = phone.events()
            entries = [entry async for entry in laptop.inbox]
            assert [(entry.seq, body_of(entry), entry.read_at) for entry in entries] == [
                (1, 1, None),
                (2, 2, None),
                (3, 3, None),
            ]
            assert (await laptop.inbox.seen(through=3)).unseen == 0
            assert (await next_of(events, NotificationUpdated)).state == "seen"
            assert (await laptop.inbox.read(entries[1].id)).unread == 2
            updated = await next_of(events, NotificationUpdated)
            assert (updated.state, updated.ids) == ("read", [entries[1].id])
            await phone.inbox.archive(entries[0].id)
            assert [entry.seq async for entry in laptop.inbox] == [2, 3]
            assert (laptop.inbox.unread, laptop.inbox.unseen) == (1, 0)
            page = await laptop.inbox.page(filter="archived")
            assert [entry.seq for entry in page.notifications] == [1]


async def test_a_wrong_token_is_refused_with_its_code() -> None:
    async with serving() as served:
        wrong = Client(f"ws://127.0.0.1:{served.port}/v1/connect", "not a token")
        with pytest.raises(ConnectionRefused) as refused:
            await wrong.__aenter__()
        assert refused.value.code == 4500


async def test_closing_a_client_sends_bye_so_that_other_users_see_it_offline_at_once() -> None:
    async with serving() as served, client(served, "bob") as bob:
        async with client(served, "alice"):
            await bob.watch("alice")
        await until(lambda: bob.people["alice"].state == "offline")
        assert bob.people["alice"].last_seen == served.clock.now_ms()


async def test_a_room_that_the_app_deletes_is_left_and_changes_by_the_app_arrive() -> None:
    async with serving() as served:
        await served.lobby()
        moderation, now = served.node.moderation, served.clock.now_ms()
        async with client(served, "alice") as alice:
            events = alice.events()
            await alice.join("lobby")
            await alice.send("lobby", "rude")
            note = AuditNote("default", now, "desk", "message.edited", "lobby", ref=1)
            await moderation.change("default", "lobby", Draft("mod", None, b'"***"', "k1", now, 1, "edit"), note)
            await next_of(events, RoomMessage)
            edit = await next_of(events, RoomMessage)
            assert (edit.op, edit.ref, body_of(edit), edit.user) == ("edit", 1, "***", "mod")
            await moderation.archive("default", "lobby", True, note._replace(action="room.archived"))
            assert (await next_of(events, RoomChanged)).archived is True
            await until(lambda: bool((it := served.node.rooms.local(LOBBY)) and it.room and it.room.archived))
            with pytest.raises(CommandRefused, match="archived"):
                await alice.send("lobby", "late")
            assert (await alice.rooms())[0].archived
            assert await moderation.delete("default", "lobby", note._replace(action="room.deleted"))
            gone = await next_of(events, RoomChanged)
            assert (gone.removed, gone.reason) == (True, "room deleted")
            assert alice.cursors["rooms"] == {}
