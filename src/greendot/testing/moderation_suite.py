"""Contract of every store for moderated messages, and for archived and deleted rooms."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from msgspec.structs import replace

from greendot.errors import NoSuchMessage, RoomArchived, RoomBeingDeleted, StaleMembers
from greendot.presence.profile_model import ProfileChange
from greendot.store.audit import AuditNote
from greendot.store.moderation import DELETE_ROOMS
from greendot.store.port import Store
from greendot.store.rooms import Draft, Record, Room, Written
from greendot.testing.reaction_suite import counts, own_reactions, react
from greendot.testing.store_harness import NOW, StoreHarness, T, draft, numbers, seq
from greendot.testing.user_data_suite import all_of

LATER = NOW * 2  # long after any deletion, by every clock
NOTHING = b"null"


def change(op: Literal["edit", "delete"], ref: int, key: str, body: bytes = NOTHING) -> Draft:
    return Draft("system", None, body, key, NOW, ref, op)


def note(room: str = "r1", action: Literal["message.deleted", "room.deleted"] = "message.deleted") -> AuditNote:
    return AuditNote(T, NOW, "desk", action, room, reason="spam")


async def moderated(store: Store, changed: Draft, room: str = "r1") -> Written:
    ref = note(room)._replace(ref=changed.ref)
    written = await store.moderate(T, room, changed, ref)
    assert written is not None
    return written


async def room_of(store: Store, room: str = "r1") -> Room:
    found = await store.room(T, room)
    assert found is not None
    return found


async def page(store: Store, room: str = "r1") -> list[Record]:
    return await store.messages(T, room, after=0, limit=100)


async def purge(store: Store, limit: int = 100) -> int:
    """Remove all rows of deleted rooms; return how many there were."""
    rows = 0
    while not (purged := await store.purge_rooms(LATER, limit)).is_over:
        assert purged.rows <= limit
        rows += purged.rows
    return rows + purged.rows


async def furnish(store: Store, room: str, tenant: str = T) -> None:
    """Make a room with two members, five messages and a marker."""
    await store.put_room(tenant, room, open=True)
    for user in ("ann", "bob"):
        await store.put_member(tenant, room, user)
    for number in range(5):
        await store.append(tenant, room, draft(key=f"k{number}"))
    await store.put_marker(tenant, room, "ann", 5)


class ModerationSuite(StoreHarness):
    """Contract of `ModerationStore`, as tests."""

    # --- messages ---

    async def test_an_edit_by_the_app_is_the_next_record_and_is_in_the_audit(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            written = await moderated(store, change("edit", 2, "e1", b'"better"'))
            assert written == Written(
                Record("r1", 6, written.record.id, "system", None, b'"better"', NOW, 2, "edit"), True, 2, "full"
            )
            assert await page(store) == [*(await page(store))[:5], written.record]
            (entry,) = await store.audit(T, limit=10)
            assert entry[2:] == (T, "desk", "message.deleted", "r1", "ann", 2, "spam", None, None)

    async def test_a_deletion_erases_the_content_of_the_message_and_of_its_edits(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            before = await page(store)
            await moderated(store, change("edit", 2, "e1", b'"by the app"'))
            await store.append(T, "r1", replace(draft("ann", "e2", b'"by ann"'), ref=2, op="edit"))
            await store.append(T, "r1", replace(draft("ann", "e3", b'"of another"'), ref=3, op="edit"))
            erasures = (await room_of(store)).erasures
            deletion = (await moderated(store, change("delete", 2, "d1"))).record
            after = await page(store)
            assert [message.seq for message in after] == [*range(1, 10)]
            erased = [message for message in after if message.op == "erased"]
            assert [(m.seq, m.body, m.user, m.at) for m in erased] == [
                (2, NOTHING, "ann", NOW),
                (6, NOTHING, "system", NOW),
                (7, NOTHING, "ann", NOW),
            ]
            assert erased[0] == replace(before[1], body=NOTHING, op="erased")
            assert after[7].body == b'"of another"'
            assert (deletion.seq, deletion.ref, deletion.op, deletion.body) == (9, 2, "delete", NOTHING)
            assert (await room_of(store)).erasures == erasures + 1
            exported = [row["body"] for table, row in await all_of(store, "ann") if table == "messages"]
            assert b'"by ann"' not in exported

    async def test_deleting_twice_is_the_first_deletion(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            first = await moderated(store, change("delete", 2, "d1"))
            again = await moderated(store, change("delete", 2, "d2"))
            assert (first.new, again.new, again.record) == (True, False, first.record)
            assert (await room_of(store)).head == 6
            assert len(await store.audit(T, limit=10)) == 1

    async def test_many_deletions_of_one_message_at_once_are_one(self) -> None:
        async with self.opened_twice() as (one, two):
            await furnish(one, "r1")
            written = await asyncio.gather(
                *(
                    moderated(store, change("delete", 2, f"d{n}"))
                    for n in range(10)
                    for store in (one, two)[n % 2 :][:1]
                )
            )
            assert {result.record.seq for result in written} == {6}
            assert sum(result.new for result in written) == 1
            assert len(await one.audit(T, limit=10)) == 1

    async def test_what_its_author_deleted_is_erased_by_the_app_without_another_record(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            own = await store.append(T, "r1", replace(draft("ann", "d1", NOTHING), ref=2, op="delete"))
            again = await moderated(store, change("delete", 2, "d2"))
            assert own is not None
            assert (again.new, again.record) == (False, own.record)
            message = await store.message(T, "r1", 2)
            assert message is not None
            assert (message.op, message.body) == ("erased", NOTHING)
            assert len(await store.audit(T, limit=10)) == 1

    async def test_only_messages_are_moderated(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            edit = (await moderated(store, change("edit", 2, "e1", b'"x"'))).record
            deletion = (await moderated(store, change("delete", 3, "d1"))).record
            for ref in (0, 99, edit.seq, deletion.seq):
                for op in ("edit", "delete"):
                    with pytest.raises(NoSuchMessage):
                        await store.moderate(T, "r1", change(op, ref, f"{op}{ref}"), note())
            with pytest.raises(NoSuchMessage):  # it was deleted
                await store.moderate(T, "r1", change("edit", 3, "e3", b'"x"'), note())
            assert await store.moderate(T, "none", change("delete", 1, "d1"), note("none")) is None
            assert await store.moderate("t2", "r1", change("delete", 1, "d1"), note()) is None
            assert (await room_of(store)).head == deletion.seq
            assert len(await store.audit(T, limit=10)) == 2

    async def test_a_known_key_writes_nothing(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            first = await moderated(store, change("edit", 2, "e1", b'"x"'))
            again = await moderated(store, change("edit", 2, "e1", b'"y"'))
            assert (again.new, again.record) == (False, first.record)
            assert len(await store.audit(T, limit=10)) == 1

    async def test_a_deleted_message_is_not_changed_by_a_change_that_was_under_way(self) -> None:
        async with self.opened_twice() as (one, two):
            await furnish(one, "r1")
            revision = (await room_of(one)).members_rev
            await moderated(one, change("delete", 2, "d1"))
            for op in ("edit", "delete"):
                late = replace(draft("ann", op, b'"secret"'), ref=2, op=op, members_rev=revision)
                with pytest.raises(NoSuchMessage):
                    await two.append(T, "r1", late)
            assert seq(await two.append(T, "r1", replace(draft("ann", "e9"), ref=3, op="edit"))) == 7

    async def test_a_change_of_no_message_is_refused_alone(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            drafts = [replace(draft(key=f"c{n}"), ref=ref, op="edit") for n, ref in enumerate((1, 99, 2, 0))]
            results = await asyncio.gather(*(store.append(T, "r1", one) for one in drafts), return_exceptions=True)
            assert [isinstance(result, NoSuchMessage) for result in results] == [False, True, False, True]
            assert await numbers(store) == [*range(1, 8)]

    async def test_a_message_that_the_app_deletes_loses_its_reactions_and_takes_no_more(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            for ref in (1, 2, 3):
                for user in ("ann", "bob"):
                    await store.append(T, "r1", react(user, ref=ref))
            await store.append(T, "r1", replace(draft("ann", "d1", NOTHING), ref=2, op="delete"))
            for ref in (1, 2):  # the author deleted the second one before
                await moderated(store, change("delete", ref, f"m{ref}"))
                assert await counts(store, "bob", ref) == []
                for on in (True, False):
                    with pytest.raises(NoSuchMessage):
                        await store.append(T, "r1", react("bob", ref=ref, on=on))
            assert await counts(store, "bob", 3) == [("👍", 2, True)]
            assert await own_reactions(store, "bob") == [("r1", 3, "👍")]

    async def test_a_reaction_is_not_moderated(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            reaction = seq(await store.append(T, "r1", react(ref=1)))
            for op in ("edit", "delete"):
                with pytest.raises(NoSuchMessage):
                    await store.moderate(T, "r1", change(op, reaction, op), note())
            await moderated(store, change("edit", 1, "e1", b'"x"'))
            assert await counts(store, "ann") == [("👍", 1, True)]

    # --- archived rooms ---

    async def test_an_archived_room_takes_no_reactions_and_keeps_those_it_has(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            await store.append(T, "r1", react("ann"))
            await store.archive_room(T, "r1", True, note()._replace(action="room.archived"))
            results = await asyncio.gather(
                store.append(T, "r1", react("bob")),
                store.append(T, "r1", react("ann")),
                store.append(T, "r1", react("ann", on=False)),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [RoomArchived] * 3
            assert await counts(store, "ann") == [("👍", 1, True)]
            assert (await room_of(store)).head == 6

    async def test_an_archived_room_takes_no_messages_and_can_be_read_and_moderated(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            await store.put_room(T, "r2", open=True)
            before = await room_of(store)
            archived = await store.archive_room(T, "r1", True, note()._replace(action="room.archived"))
            assert archived == replace(before, archived=True, members_rev=before.members_rev + 1)
            assert await store.room(T, "r1") == archived
            results = await asyncio.gather(
                store.append(T, "r1", draft(key="new")),
                store.append(T, "r2", draft(key="new")),
                store.append(T, "r1", draft(key="k0")),
                store.append(T, "r1", replace(draft(key="old"), members_rev=before.members_rev)),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [RoomArchived, Written, Written, StaleMembers]
            assert [message.seq for message in await page(store)] == [1, 2, 3, 4, 5]
            await moderated(store, change("delete", 1, "d1"))
            back = await store.archive_room(T, "r1", False, note()._replace(action="room.unarchived"))
            assert back is not None
            assert (back.archived, back.members_rev) == (False, archived.members_rev + 1)
            assert seq(await store.append(T, "r1", draft(key="new"))) == 7

    async def test_archiving_twice_is_archiving_once(self) -> None:
        async with self.opened() as store:
            await store.put_room(T, "r1")
            entry = note()._replace(action="room.archived")
            first, again = [await store.archive_room(T, "r1", True, entry) for _ in range(2)]
            assert first == again
            assert await store.archive_room(T, "none", True, entry) is None
            assert [e.action for e in await store.audit(T, limit=10)] == ["room.archived"]
            assert (await store.put_room(T, "r1", open=True)).archived
            found = await store.rooms_of(T, "bob")
            assert [of.room.archived for of in found] == [True]

    # --- deleted rooms ---

    async def test_a_deleted_room_is_found_by_no_read_and_takes_nothing(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            await furnish(store, "r2")
            assert await store.delete_room(T, "r1", note(action="room.deleted"))
            assert await store.room(T, "r1") is None
            assert [room.room for room in await store.rooms(T, None, 9)] == ["r2"]
            assert [of.room.room for of in await store.rooms_of(T, "ann")] == ["r2"]
            assert await store.user_rooms([(T, "r1", "ann")]) == {}
            assert await store.heads([(T, "r1")]) == {}
            assert await store.room_page(T, "r1", limit=9) is None
            assert await store.member_page(T, "r1", None, 9) is None
            assert await store.append(T, "r1", draft(key="late")) is None
            assert await store.moderate(T, "r1", change("delete", 1, "d1"), note()) is None
            assert await store.put_member(T, "r1", "eve") is None
            assert (await store.put_marker(T, "r1", "eve", 3))[:2] == (0, 0)
            assert await store.archive_room(T, "r1", True, note()) is None

    async def test_rows_of_a_deleted_room_are_removed_some_at_a_time_and_those_of_others_stay(self) -> None:
        async with self.opened() as store:
            for room, tenant in (("r1", T), ("r2", T), ("r1", "t2")):
                await furnish(store, room, tenant)
            kept = await page(store, "r2"), await store.messages("t2", "r1", limit=9)
            assert await store.delete_room(T, "r1", note(action="room.deleted"))
            assert await purge(store, limit=3) == 5 + 2 + 1
            assert await page(store) == []
            assert await store.members(T, "r1", None, 9) == []
            assert await store.marker(T, "r1", "ann") == 0
            assert (await page(store, "r2"), await store.messages("t2", "r1", limit=9)) == kept
            assert len(await store.members(T, "r2", None, 9)) == 2
            assert await store.marker("t2", "r1", "ann") == 5
            assert await purge(store) == 0

    async def test_reactions_and_receipts_are_removed_with_their_room_and_user_info_stays(self) -> None:
        async with self.opened() as store:
            await store.put_profile(T, "ann", ProfileChange(NOW, NOW, name="Ann"))
            for room in ("r1", "r2"):
                await furnish(store, room)
                await store.put_room(T, room, receipts=True)
                for user in ("ann", "bob"):
                    await store.append(T, room, react(user))
                await store.append(T, room, react("bob", on=False))
                await store.put_marker(T, room, "bob", 5, NOW)
            assert await store.delete_room(T, "r1", note(action="room.deleted"))
            # Messages, members, markers, receipt, reaction, and its count with the mark of the removed one.
            assert await purge(store, limit=3) == (5 + 3) + 2 + 2 + 1 + 1 + 1
            assert await own_reactions(store, "ann") == [("r2", 1, "👍")]
            await store.put_room(T, "r1", open=True, receipts=True)
            await store.append(T, "r1", draft(key="k0"))
            assert await counts(store, "ann") == []
            assert await store.receipt_count(T, "r1", 1) == 0
            assert await store.receipt_count(T, "r2", 5) == 1
            assert (await store.profiles([(T, "ann")]))[T, "ann"].name == "Ann"

    async def test_the_name_of_a_deleted_room_is_free_when_nothing_is_left(self) -> None:
        async with self.opened_twice() as (one, two):
            await furnish(one, "r1")
            old = await room_of(one)
            assert await one.delete_room(T, "r1", note(action="room.deleted"))
            for store in (one, two):
                with pytest.raises(RoomBeingDeleted):
                    await store.put_room(T, "r1", open=True)
            assert await store.room(T, "r1") is None
            await one.purge_rooms(LATER, 3)
            with pytest.raises(RoomBeingDeleted):
                await two.put_room(T, "r1")
            await purge(one)
            new = await two.put_room(T, "r1")
            assert (new.head, new.members_rev, new.open) == (0, 0, False)
            assert new.epoch != old.epoch
            assert seq(await one.append(T, "r1", draft(key="k0"))) == 1

    async def test_deleting_a_room_twice_is_deleting_it_once(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            entry = note(action="room.deleted")
            assert not await store.delete_room(T, "none", entry)
            assert [await store.delete_room(T, "r1", entry) for _ in range(2)] == [True, True]
            assert [e.action for e in await store.audit(T, limit=10)] == ["room.deleted"]
            await purge(store)
            assert not await store.delete_room(T, "r1", entry)

    async def test_writers_and_deletions_at_once_leave_a_room_whole_or_gone(self) -> None:
        async with self.opened_twice() as (one, two):
            for turn in range(10):
                await furnish(one, "r1")
                calls = [
                    two.append(T, "r1", draft(key="a")),
                    one.delete_room(T, "r1", note(action="room.deleted")),
                    two.put_room(T, "r1", open=True),
                    two.put_member(T, "r1", f"u{turn}"),
                    two.put_marker(T, "r1", f"u{turn}", 5),
                    two.append(T, "r1", draft(key="b")),
                ]
                results = await asyncio.gather(*calls, return_exceptions=True)
                assert all(not isinstance(r, Exception) or isinstance(r, RoomBeingDeleted) for r in results), results
                assert await one.room(T, "r1") is None
                await purge(one)
                assert await page(one) == []
                assert await one.members(T, "r1", None, 9) == []

    async def test_a_deletion_makes_its_job_due(self) -> None:
        async with self.opened() as store:
            await furnish(store, "r1")
            await store.plan_job(DELETE_ROOMS, "every 60 s", LATER)
            await store.plan_job("other", "every 60 s", LATER)
            assert await store.delete_room(T, "r1", note(action="room.deleted"))
            due = {state.name: state.next_at for state in await store.jobs()}
            now = await store.job_time(NOW)
            assert due[DELETE_ROOMS] <= now
            assert due["other"] == LATER
