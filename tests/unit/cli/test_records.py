"""`greendot rooms` and `greendot inbox`, on a store that is in use."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from cli.calls import complaint
from cli.stores import both_stores, opened, said
from greendot.clock import SystemClock
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft

T = "default"


@both_stores
async def test_rooms_are_listed_with_what_they_are(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        assert await said("rooms", "--store", url) == "There are no rooms.\n"
        assert await said("rooms", "--json", "--store", url) == '{"rooms":[]}\n'
        await store.put_room(T, "club", bus="hint")
        await store.put_room(T, "lobby", open=True)
        await store.put_room("acme", "secret")
        await store.put_member(T, "club", "bob", "reader")
        await store.put_member(T, "club", "alice", "admin")
        for number in range(3):
            await store.append(T, "lobby", Draft("bob", None, b"1", f"k{number}", 1))
        assert await said("rooms", GREENDOT_STORE_URL=url) == (
            "ROOM   MESSAGES  MEMBERS  ACCESS   BUS\n"
            "club   0         2        members  hint\n"
            "lobby  3         0        open     full\n"
        )
        assert msgspec.json.decode(await said("rooms", "--json", "--store", url))["rooms"] == [
            {"room": "club", "open": False, "head": 0, "bus": "hint", "members": 2},
            {"room": "lobby", "open": True, "head": 3, "bus": "full", "members": 0},
        ]
        assert "There may be more: --after club\n" in await said("rooms", "--limit", "1", "--store", url)
        assert await said("rooms", "--after", "lobby", "--store", url) == "There are no more rooms.\n"
        assert "secret" in await said("rooms", "--tenant", "acme", "--store", url)

        assert await said("rooms", "club", "--store", url) == (
            "club is for members only: 0 messages, 2 members, bus mode hint.\n"
            "USER   ROLE\nalice  admin\nbob    reader\n"
        )
        assert msgspec.json.decode(await said("rooms", "club", "--json", "--store", url)) == {
            "room": "club",
            "open": False,
            "head": 0,
            "bus": "hint",
            "members": [{"user": "alice", "role": "admin"}, {"user": "bob", "role": "reader"}],
        }
        assert await said("rooms", "lobby", "--store", url) == (
            "lobby is open to all users: 3 messages, 0 members, bus mode full.\n"
        )
        assert "--after alice" in await said("rooms", "club", "--limit", "1", "--store", url)


@both_stores
async def test_an_inbox_is_shown_with_what_became_of_each(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        assert await said("inbox", "alice", "--store", url) == "alice has no notifications yet.\n"
        now = SystemClock().now_ms()
        made = await store.notify(
            [Notice(T, "alice", "order", b'{"n":"%s"}' % (b"x" * n), f"k{n}", now) for n in (0, 1, 80)]
        )
        ids = [of.notification.id for of in made]
        await store.mark(T, "alice", "read", ids=ids[:1], at=now)
        await store.mark(T, "alice", "archive", ids=ids[1:2], at=now)
        shown = (await said("inbox", "alice", "--store", url)).splitlines()
        assert shown[0] == "alice has 1 unread, 1 unseen notifications; the newest is number 3."
        assert shown[1].split() == ["NUMBER", "KIND", "CREATED", "STATE", "BODY"]
        assert [line.split()[0] for line in shown[2:]] == ["1", "3"]
        assert "seen, read" in shown[2]
        assert shown[3].endswith("xxx…")
        archived = await said("inbox", "alice", "--only", "archived", "--store", url)
        assert "seen, read, archived" in archived
        assert "For older notifications: --before 3\n" in await said("inbox", "alice", "--limit", "1", "--store", url)
        reply = msgspec.json.decode(await said("inbox", "alice", "--json", "--store", url))
        assert [entry["id"] for entry in reply.pop("notifications")] == [ids[0], ids[2]]
        assert reply == {"head": 3, "unread": 1, "unseen": 1}


@pytest.mark.parametrize("command", [["rooms"], ["inbox", "alice"], ["repair", "counters"]], ids=str)
def test_looking_makes_no_store(command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    assert f"store {path} not found" in complaint(*command, "--store", f"sqlite:///{path}")
    assert not path.exists()
    assert "inside the server process" in complaint(*command, "--store", "sqlite:///:memory:")
    assert "cannot use the store postgresql://127.0.0.1:1/db: " in complaint(
        *command, "--store", "postgresql://ann:hush@127.0.0.1:1/db"
    )


async def test_a_room_that_is_not_there_is_named(tmp_path: Path, postgres: str) -> None:
    async with opened("sqlite", tmp_path, postgres) as (url, _):
        told = await asyncio.to_thread(complaint, "rooms", "nowhere", "--store", url)
        assert told == "room 'nowhere' not found. List the rooms with: greendot rooms"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["rooms", "a/b"], "room 'a/b'"),
        (["rooms", "--tenant", "a/b"], "tenant 'a/b'"),
        (["rooms", "--limit", "0"], "--limit"),
        (["inbox"], "USER"),
        (["inbox", "a b"], "user 'a b'"),
        (["inbox", "alice", "--only", "some"], "--only"),
    ],
)
def test_what_cannot_be_meant_is_named(arguments: list[str], word: str) -> None:
    assert word in complaint(*arguments)
