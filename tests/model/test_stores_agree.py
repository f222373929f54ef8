"""SQLite, PostgreSQL and a model in Python give equal results for any sequence of operations.

`STORE_EXAMPLES` sets the number of sequences (`make model`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greendot.store.inbox import Filter, Inbox, Mark, Notice
from greendot.store.port import Store
from greendot.store.postgres import PostgresStore
from greendot.store.sqlite import SqliteStore
from greendot.testing.store_harness import draft
from postgres_server import PATIENT, execute, fresh_schema

T = "t"
EXAMPLES = int(os.environ.get("STORE_EXAMPLES", "40"))
TABLES = ("rooms", "members", "markers", "messages", "inboxes", "notifications", "status")

users = st.sampled_from(["ann", "bob"])
rooms = st.sampled_from(["r1", "r2"])
keys = st.sampled_from([f"k{n}" for n in range(8)])
seqs = st.integers(-1, 6)
marks = st.sampled_from(["seen", "read", "archive", "ack"])
notices = st.tuples(users, keys, st.integers(50, 60), st.none() | st.integers(0, 60))
operations = st.one_of(
    st.tuples(st.just("room"), rooms, st.sampled_from([None, True, False]), st.sampled_from([None, "full", "hint"])),
    st.tuples(st.just("member"), rooms, users, st.sampled_from(["reader", "member", "admin", None])),
    st.tuples(st.just("append"), rooms, users, keys),
    st.tuples(st.just("marker"), rooms, users, seqs),
    st.tuples(st.just("notify"), st.lists(notices, min_size=1, max_size=5)),
    st.tuples(st.just("mark"), users, marks, st.lists(seqs, max_size=4) | seqs),
    st.tuples(st.just("delivered"), users, st.lists(seqs, max_size=3), st.sampled_from(["live", "push"])),
    st.tuples(st.just("prune"), st.integers(1, 60), st.integers(1, 80)),
)


class Model:
    """Model of the store in plain Python."""

    def __init__(self) -> None:
        self.rooms: dict[str, dict[str, Any]] = {}
        self.members: dict[tuple[str, str], str] = {}
        self.markers: dict[tuple[str, str], int] = {}
        self.messages: dict[str, list[tuple[str, str]]] = {}
        self.heads: dict[str, int] = {}
        self.entries: dict[str, dict[int, dict[str, Any]]] = {}

    def do(self, now: int, name: str, *given: Any) -> Any:
        return getattr(self, f"_{name}")(now, *given)

    def _room(self, now: int, room: str, is_open: bool | None, bus: str | None) -> Any:
        known = self.rooms.setdefault(room, {"open": bool(is_open), "bus": "full", "rev": 0})
        if is_open is not None and known["open"] != is_open:
            known["open"], known["rev"] = is_open, known["rev"] + 1
        known["bus"] = bus or known["bus"]
        return known["open"], known["bus"], known["rev"], len(self.messages.get(room, []))

    def _member(self, now: int, room: str, user: str, role: str | None) -> Any:
        known = room in self.rooms
        had = self.members.get((room, user))
        if known and role != had:
            self.rooms[room]["rev"] += 1
            if role is None:
                del self.members[room, user]
            else:
                self.members[room, user] = role
        return (self.rooms[room]["rev"], role != had) if known else None

    def _append(self, now: int, room: str, user: str, key: str) -> Any:
        if room not in self.rooms:
            return None
        said = self.messages.setdefault(room, [])
        if new := (user, key) not in said:
            said.append((user, key))
        return said.index((user, key)) + 1, new, self.rooms[room]["rev"]

    def _marker(self, now: int, room: str, user: str, seq: int) -> Any:
        if room not in self.rooms:
            return 0, 0
        head = len(self.messages.get(room, []))
        self.markers[room, user] = max(self.markers.get((room, user), 0), min(seq, head))
        return self.markers[room, user], head

    def _notify(self, now: int, notices: list[tuple[str, str, int, int | None]]) -> Any:
        results = []
        for user, key, created_at, expires_at in notices:
            entries = self.entries.setdefault(user, {})
            found = next((seq for seq, entry in entries.items() if entry["key"] == key), None)
            if new := found is None:
                found = self.heads[user] = self.heads.get(user, 0) + 1
                entries[found] = {"key": key, "created": created_at, "expires": expires_at}
            results.append((found, new))
        return results

    def _mark(self, now: int, user: str, mark: Mark, which: list[int] | int) -> Any:
        column = {"archive": "archived", "ack": "acked"}.get(mark, mark)
        implied = {"seen": (), "read": ("seen",)}.get(mark, ("read", "seen"))
        marked = []
        for seq, entry in sorted(self.entries.get(user, {}).items()):
            if (seq <= which if isinstance(which, int) else seq in which) and column not in entry:
                marked.append(seq)
                for each in (column, *implied):
                    entry.setdefault(each, now)
        return marked, self.inbox(user)

    def _delivered(self, now: int, user: str, seqs: list[int], how: str) -> Any:
        for seq in seqs:
            if entry := self.entries.get(user, {}).get(seq):
                entry.setdefault(how, now)

    def _prune(self, now: int, when: int, keep: int) -> Any:
        changed = {}
        for user, entries in self.entries.items():
            old = [
                seq
                for seq, entry in entries.items()
                if (entry["expires"] is not None and entry["expires"] <= when) or entry["created"] < when - keep
            ]
            for seq in old:
                del entries[seq]
            if old:
                changed[user] = self.inbox(user)
        return changed

    def inbox(self, user: str) -> Inbox:
        entries = self.entries.get(user, {}).values()
        unread, unseen = (sum(column not in entry for entry in entries) for column in ("read", "seen"))
        return Inbox(self.heads.get(user, 0), unread, unseen)

    def page(self, user: str, only: Filter) -> list[tuple[Any, ...]]:
        wanted = {
            "all": lambda entry: "archived" not in entry,
            "unread": lambda entry: "read" not in entry,
            "unseen": lambda entry: "seen" not in entry,
            "archived": lambda entry: "archived" in entry,
        }[only]
        columns = ("created", "expires", "live", "push", "seen", "read", "archived", "acked")
        entries = sorted(self.entries.get(user, {}).items())
        return [(seq, *(entry.get(column) for column in columns)) for seq, entry in entries if wanted(entry)]


class Real:
    """Adapter that runs the same operations on a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ids: dict[tuple[str, int], str] = {}

    async def do(self, now: int, name: str, *given: Any) -> Any:
        return await getattr(self, f"_{name}")(now, *given)

    async def _room(self, now: int, room: str, is_open: bool | None, bus: Any) -> Any:
        made = await self.store.put_room(T, room, open=is_open, bus=bus)
        return made.open, made.bus, made.members_rev, made.head

    async def _member(self, now: int, room: str, user: str, role: Any) -> Any:
        if role is None:
            return await self.store.remove_member(T, room, user)
        return await self.store.put_member(T, room, user, role)

    async def _append(self, now: int, room: str, user: str, key: str) -> Any:
        written = await self.store.append(T, room, draft(user, key))
        return written and (written.record.seq, written.new, written.members_rev)

    async def _marker(self, now: int, room: str, user: str, seq: int) -> Any:
        marked = await self.store.put_marker(T, room, user, seq)
        return marked.marker, marked.head

    async def _notify(self, now: int, notices: list[tuple[str, str, int, int | None]]) -> Any:
        drafts = [Notice(T, user, "k", b"{}", key, created, expires) for user, key, created, expires in notices]
        created = await self.store.notify(drafts)
        for notice, made in zip(drafts, created, strict=True):
            self.ids[notice.user, made.notification.seq] = made.notification.id
        return [(made.notification.seq, made.new) for made in created]

    async def _mark(self, now: int, user: str, mark: Mark, which: list[int] | int) -> Any:
        if isinstance(which, int):
            marked = await self.store.mark(T, user, mark, through=which, at=now)
        else:
            ids = [self.ids.get((user, seq), f"{seq}-nothing") for seq in which]
            marked = await self.store.mark(T, user, mark, ids=ids, at=now)
        return [int(text.partition("-")[0]) for text in marked.ids], marked.inbox

    async def _delivered(self, now: int, user: str, seqs: list[int], how: Any) -> Any:
        await self.store.delivered({(T, user): seqs}, how, now)

    async def _prune(self, now: int, when: int, keep: int) -> Any:
        return {key[1]: inbox for key, inbox in (await self.store.prune(when, keep_ms=keep, limit=1_000)).items()}

    async def page(self, user: str, only: Filter) -> list[tuple[Any, ...]]:
        page = await self.store.notifications(T, user, after=0, limit=99, only=only)
        return [
            (n.seq, n.created_at, n.expires_at, n.live_at, n.push_at, n.seen_at, n.read_at, n.archived_at, n.acked_at)
            for n in page
        ]


async def agree(store: Store, story: list[tuple[Any, ...]]) -> None:
    model, real = Model(), Real(store)
    for now, step in enumerate(story, start=100):
        assert await real.do(now, *step) == model.do(now, *step), step
    for user in ("ann", "bob"):
        assert await store.inbox(T, user) == model.inbox(user)
        for only in ("all", "unread", "unseen", "archived"):
            assert await real.page(user, only) == model.page(user, only), only
        for of in await store.rooms_of(T, user):
            assert (of.role, of.marker) == (
                model.members.get((of.room.room, user)),
                model.markers.get((of.room.room, user), 0),
            )
    for room in model.rooms:
        said = [(message.user, message.seq) for message in await store.messages(T, room, after=0, limit=99)]
        assert said == [(user, seq) for seq, (user, _) in enumerate(model.messages.get(room, []), start=1)]
    assert await store.recount(fix=False) == []


# Short sequences find nothing, and all of them start with some records.
BEGINNING = [("room", "r1", True, None), *(("append", "r1", "ann", f"k{n}") for n in range(4))]
BEGINNING += [("notify", [(user, f"k{n}", 55, None) for user in ("ann", "bob") for n in range(4)])]
stories = st.lists(operations, min_size=15, max_size=40).map(lambda story: [*BEGINNING, *story])
slow = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@settings(slow, max_examples=EXAMPLES)
@given(story=stories)
def test_sqlite_does_what_the_model_does(story: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        store = SqliteStore(":memory:")
        await store.start()
        try:
            await agree(store, story)
        finally:
            await store.close()

    uvloop.run(run())


@pytest.fixture(scope="module")
def emptied(postgres: str) -> Iterator[tuple[asyncio.Runner, str, PostgresStore]]:
    """Yield a store that is emptied for each sequence: creating a new one each time would be slow."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        place = fresh_schema(postgres)
        url = runner.run(place.__aenter__())
        store = PostgresStore(url, migrate=True, limits=PATIENT)
        try:
            runner.run(store.start())
            yield runner, url, store
        finally:
            runner.run(store.close())
            runner.run(place.__aexit__(None, None, None))


@settings(slow, max_examples=max(1, EXAMPLES // 2))
@given(story=stories)
def test_postgres_does_what_the_model_does(
    emptied: tuple[asyncio.Runner, str, PostgresStore], story: list[tuple[Any, ...]]
) -> None:
    runner, url, store = emptied
    runner.run(execute(url, "; ".join(f"DELETE FROM greendot_{table}" for table in TABLES)))
    runner.run(agree(store, story))
