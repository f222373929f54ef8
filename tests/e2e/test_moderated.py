"""Moderation by the app: messages edited and deleted, rooms archived and deleted, and the audit."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from backends import on_each_pair, serving_on
from e2e import processes
from e2e.processes import Answer, until
from e2e.test_api_keys import make
from greendot.engine.messages import Topic
from greendot.jobs.room_deletion import DeleteRooms
from greendot.store.audit import AuditNote
from greendot.testing import Served, WireClient, hold, serving
from greendot.testing.server import API_KEY

DEN = Topic("room", "default", "den")


async def ask(served: Served, method: str, path: str, body: Any = None, key: str = API_KEY) -> Answer:
    return await processes.ask(served.port, method, path, body, authorization=f"Bearer {key}")


async def furnished(served: Served, *users: str, room: str = "den") -> list[WireClient]:
    """Make a room with these members; return a client of each, which has joined the room."""
    await served.node.store.put_room("default", room)
    for user in users:
        await served.node.store.put_member("default", room, user)
    return [await served.joined(user, room) for user in users]


async def hear(client: WireClient, kind: str) -> dict[str, Any]:
    """Return the next frame of this type; skip all others."""
    while (frame := await client.receive())["type"] != kind:
        pass
    return frame


async def say(client: WireClient, *bodies: str, room: str = "den") -> int:
    seq = 0
    for body in bodies:
        seq = (await client.request(type="room.send", room=room, body=body))["seq"]
    return seq


async def refusal(client: WireClient, **command: Any) -> tuple[str, str]:
    """Send a command and return the code and the text of its refusal."""
    client.send(**command, id="refused")
    frame = await hear(client, "error")
    return frame["code"], frame["message"]


def bodies(messages: list[dict[str, Any]]) -> list[Any]:
    return [(message["seq"], message["op"], message["body"]) for message in messages]


async def removed(client: WireClient) -> dict[str, Any]:
    return dict((await hear(client, "room.changed"))["data"])


async def finish(served: Served) -> None:
    """Run the job of deletions to its end, a minute later: statements from before the deletion have ended."""
    store = served.node.store
    purge = store.purge_rooms
    store.purge_rooms = lambda now, limit: purge(now + 60_000, limit)  # type: ignore[method-assign]
    try:
        await served.job(DeleteRooms.name)
    finally:
        del store.purge_rooms


# --- messages ---


@on_each_pair
async def test_an_edit_by_the_app_reaches_all_listeners_as_the_next_record(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        await say(ann, "hello", "world")
        answer = await ask(served, "PATCH", "/v1/rooms/den/messages/1", {"body": "***", "by": "mod", "reason": "rude"})
        assert (answer.status, answer.json()["seq"]) == (200, 3)
        for client in (ann, bob):
            while (heard := (await hear(client, "room.message"))["data"])["seq"] < 3:
                pass
            assert (heard["ref"], heard["op"], heard["body"], heard["user"]) == (1, "edit", "***", "mod")
            assert heard["id"] == answer.json()["id"]
        await ask(served, "PATCH", "/v1/rooms/den/messages/2", {"body": 1})
        assert (await hear(bob, "room.message"))["data"]["user"] == "system"


@on_each_pair
async def test_after_a_deletion_no_reader_gets_the_content_again(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        await say(ann, "secret", "kept")
        await ann.request(type="room.edit", room="den", ref=1, body="secret, too")
        await bob.close()
        # A client that returns makes the node keep the messages in memory for others.
        eve = await served.client("ann")
        assert len((await eve.request(type="room.join", room="den", after=0))["messages"]) == 3
        deleted = await ask(served, "DELETE", "/v1/rooms/den/messages/1?by=mod&reason=spam")
        assert (deleted.status, deleted.json()["seq"]) == (200, 4)
        expected = [(1, "erased", None), (2, None, "kept"), (3, "erased", None), (4, "delete", None)]
        bob = await served.client("bob")
        assert bodies((await bob.request(type="room.join", room="den", after=0))["messages"]) == expected
        assert bodies((await bob.request(type="room.join", room="den", history=9))["messages"]) == expected
        assert bodies((await bob.request(type="room.history", room="den"))["messages"]) == expected
        assert bodies((await ask(served, "GET", "/v1/rooms/den/messages?after=0")).json()["messages"]) == expected
        await bob.close()
        back = await served.client("bob", resume={"session": bob.welcome["session"], "rooms": {"den": 0}})
        heard = [frame["data"] for frame in await back.quiet() if frame["type"] == "room.message"]
        assert bodies(heard) == expected
        again = await ask(served, "DELETE", "/v1/rooms/den/messages/1")
        assert again.json() == deleted.json()


@on_each_pair
async def test_a_client_that_returns_during_a_deletion_does_not_get_the_content_from_memory(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    """The node has not received the deletion from the bus. It must not serve the messages that it has read before."""
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, _ = await furnished(served, "ann", "bob")
        await say(ann, "secret", "kept")
        second = await served.client("ann")
        await second.request(type="room.join", room="den", after=0)
        published = served.node.engine.publish
        try:
            served.node.engine.publish = lambda topic, message: None  # type: ignore[method-assign]
            assert (await ask(served, "DELETE", "/v1/rooms/den/messages/1")).status == 200
        finally:
            served.node.engine.publish = published  # type: ignore[method-assign]
        bob = await served.client("bob")
        joined = await bob.request(type="room.join", room="den", after=0)
        assert bodies(joined["messages"])[:2] == [(1, "erased", None), (2, None, "kept")]


@on_each_pair
@pytest.mark.parametrize("wanted", [{"history": 10}, {"after": 0}])
@pytest.mark.parametrize("arrives", [True, False])
async def test_a_join_under_way_during_a_deletion_does_not_return_the_content(
    pair: str, wanted: dict[str, int], arrives: bool, tmp_path: Path, postgres: str
) -> None:
    """The messages are read before the deletion. With `arrives`, its record is delivered before the client attaches."""
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        await say(ann, "secret", "kept")
        second = await served.client("bob")
        method = "room_page" if "history" in wanted else "messages"
        published = served.node.engine.publish
        async with hold(served.node.store, method, at="after") as held:
            second.send(type="room.join", room="den", id="j", **wanted)
            await held.reached()
            try:
                if not arrives:
                    served.node.engine.publish = lambda topic, message: None  # type: ignore[method-assign]
                assert (await ask(served, "DELETE", "/v1/rooms/den/messages/1")).status == 200
            finally:
                served.node.engine.publish = published  # type: ignore[method-assign]
            if arrives:
                while (await bob.receive("room.message"))["data"]["op"] != "delete":
                    pass
        joined = (await second.receive("reply"))["data"]
        assert bodies(joined["messages"])[:2] == [(1, "erased", None), (2, None, "kept")]
        assert joined["head"] == (3 if arrives else 2)
        assert [message["seq"] for message in joined["messages"]] == [*range(1, joined["head"] + 1)]


@on_each_pair
@pytest.mark.parametrize("wanted", [{"history": 3}, {"after": 1}])
async def test_messages_that_come_while_a_join_compares_the_room_are_in_its_reply(
    pair: str, wanted: dict[str, int], tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        await say(ann, "one", "two")
        second = await served.client("bob")
        async with hold(served.node.rooms.membership, "erasures", at="after") as held:
            second.send(type="room.join", room="den", id="j", **wanted)
            await held.reached()
            await say(ann, "three", "four")
            while (await bob.receive("room.message"))["data"]["seq"] < 4:
                pass
        joined = (await second.receive("reply"))["data"]
        assert ([message["seq"] for message in joined["messages"]], joined["head"]) == ([2, 3, 4], 4)
        await say(ann, "five")
        assert (await second.receive("room.message"))["data"]["seq"] == 5


@on_each_pair
async def test_a_deleted_message_has_no_reactions_and_takes_none(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        await say(ann, "spam")
        await bob.request(type="room.react", room="den", ref=1, reaction="+")
        async with hold(served.node.store, "append") as held:
            ann.send(type="room.react", room="den", ref=1, reaction="+", id="r")
            await held.reached()
            assert (await ask(served, "DELETE", "/v1/rooms/den/messages/1")).status == 200
        assert (await hear(ann, "error"))["code"] == "bad_field"
        posted = await ask(served, "PUT", "/v1/rooms/den/messages/1/reactions/x?user=ann")
        assert (posted.status, posted.json()["detail"]) == (404, "there is no message 1 in room 'den'")
        found = (await ask(served, "GET", "/v1/rooms/den/messages?after=0")).json()["messages"]
        assert [(it["seq"], it["op"], it.get("reactions") or []) for it in found] == [
            (1, "erased", []),
            (2, "react", []),
            (3, "delete", []),
        ]


@on_each_pair
async def test_an_edit_under_way_while_its_message_is_deleted_is_refused(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        (ann,) = await furnished(served, "ann")
        await say(ann, "secret")
        async with hold(served.node.store, "append") as held:
            ann.send(type="room.edit", room="den", ref=1, body="secret, too", id="e")
            await held.reached()
            assert (await ask(served, "DELETE", "/v1/rooms/den/messages/1")).status == 200
        assert (await hear(ann, "error"))["code"] == "bad_field"
        found = (await ask(served, "GET", "/v1/rooms/den/messages?after=0")).json()["messages"]
        assert bodies(found) == [(1, "erased", None), (2, "delete", None)]


async def test_wrong_requests_are_answered_with_the_reason() -> None:
    async with serving() as served:
        (ann,) = await furnished(served, "ann")
        await say(ann, "hello")
        await ask(served, "DELETE", "/v1/rooms/den/messages/1")
        wrong = [
            ("PATCH", "/v1/rooms/den/messages/1", {"body": 1}, 404, "no message 1"),
            ("PATCH", "/v1/rooms/den/messages/9", {"body": 1}, 404, "no message 9"),
            ("DELETE", "/v1/rooms/den/messages/2", None, 404, "no message 2"),  # the deletion itself
            ("DELETE", "/v1/rooms/den/messages/x", None, 400, "at `seq` of the path"),
            ("DELETE", "/v1/rooms/den/messages/99999999999999999999", None, 400, "at `seq` of the path"),
            ("DELETE", "/v1/rooms/none/messages/1", None, 404, "there is no room 'none'"),
            ("PATCH", "/v1/rooms/den/messages/1", {}, 400, "body"),
            ("PATCH", "/v1/rooms/den/messages/1", {"body": 1, "resaon": "x"}, 400, "reason"),
            ("DELETE", "/v1/rooms/den/messages/1?resaon=x", None, 400, "reason"),
            ("DELETE", "/v1/rooms/none", None, 404, "there is no room 'none'"),
            ("DELETE", "/v1/rooms/den?why=x", None, 400, "why"),
            ("GET", "/v1/audit?action=room.burned", None, 400, "action"),
            ("GET", "/v1/audit?after=1&before=2", None, 400, "at most one"),
            ("PUT", "/v1/rooms/den", {"archive": True}, 400, "archived"),
        ]
        for method, path, body, status, said in wrong:
            answer = await ask(served, method, path, body)
            assert (answer.status, said in answer.json()["detail"]) == (status, True), (path, answer)


# --- archived rooms ---


@on_each_pair
async def test_an_archived_room_can_only_be_read(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        await say(ann, "hello")
        answer = await ask(served, "PUT", "/v1/rooms/den", {"archived": True})
        assert (answer.status, answer.json()["archived"]) == (200, True)
        changed = await removed(bob)
        assert (changed["room"], changed["archived"], changed["removed"]) == ("den", True, False)
        await until(lambda: bool((local := served.node.rooms.local(DEN)) and local.room and local.room.archived))
        for command in (
            {"type": "room.send", "body": 1},
            {"type": "room.edit", "ref": 1, "body": 1},
            {"type": "room.delete", "ref": 1},
            {"type": "room.react", "ref": 1, "reaction": "+"},
            {"type": "typing.start"},
            {"type": "signal.send", "kind": "k"},
        ):
            code, said = await refusal(ann, room="den", **command)
            assert (code, "archived" in said) == ("forbidden", True), command
        assert bodies((await ann.request(type="room.history", room="den"))["messages"]) == [(1, None, "hello")]
        assert await ann.request(type="room.read", room="den", seq=1) == {"unread": 0}
        assert (await (await served.client("bob")).request(type="room.join", room="den"))["archived"]
        assert [room["archived"] for room in (await bob.request(type="room.list"))["rooms"]] == [True]
        posted = await ask(served, "POST", "/v1/rooms/den/messages", {"user": "app", "body": 1})
        assert (posted.status, "archived" in posted.json()["detail"]) == (403, True)
        reacted = await ask(served, "PUT", "/v1/rooms/den/messages/1/reactions/x?user=ann")
        assert (reacted.status, "archived" in reacted.json()["detail"]) == (403, True)
        signal = await ask(served, "POST", "/v1/signals", {"room": "den", "kind": "k"})
        assert (signal.status, signal.json()["code"]) == (403, "forbidden")
        assert (await ask(served, "DELETE", "/v1/rooms/den/messages/1")).status == 200
        assert not (await ask(served, "PUT", "/v1/rooms/den", {"archived": False})).json()["archived"]
        await until(lambda: not ((local := served.node.rooms.local(DEN)) and local.room and local.room.archived))
        assert await say(ann, "back") == 3


@on_each_pair
async def test_a_message_under_way_while_the_room_is_archived_is_refused(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        (ann,) = await furnished(served, "ann")
        async with hold(served.node.store, "append") as held:
            ann.send(type="room.send", room="den", body="late", id="s")
            posted = asyncio.ensure_future(
                ask(served, "POST", "/v1/rooms/den/messages", {"user": "app", "body": "late, too"})
            )
            await until(lambda: held.calls == 2)
            await ask(served, "PUT", "/v1/rooms/den", {"archived": True})
        assert (await hear(ann, "error"))["code"] == "forbidden"
        assert (await posted).status == 403
        assert (await served.node.store.room("default", "den")).head == 0  # type: ignore[union-attr]


# --- deleted rooms ---


@on_each_pair
async def test_listeners_of_a_deleted_room_are_detached_and_nobody_joins_or_sends(
    pair: str, tmp_path: Path, postgres: str
) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        granted = await served.client("guest", claims={"rooms": ["den"]})
        await granted.request(type="room.join", room="den")
        await say(ann, "hello")
        answer = await ask(served, "DELETE", "/v1/rooms/den?by=mod")
        assert (answer.status, answer.body) == (202, b"")
        for client in (ann, bob, granted):
            changed = await removed(client)
            assert (changed["removed"], changed["reason"]) == (True, "room deleted")
            for command in ("room.join", "room.history", "room.present"):
                assert (await refusal(client, type=command, room="den"))[0] in ("not_a_member", "no_such_room")
            assert (await refusal(client, type="room.send", room="den", body=1))[0] in ("not_a_member", "no_such_room")
        assert (await refusal(granted, type="room.join", room="den"))[0] == "no_such_room"
        assert (await ask(served, "GET", "/v1/rooms/den")).status == 404
        assert (await ask(served, "POST", "/v1/rooms/den/messages", {"user": "app", "body": 1})).status == 404
        assert (await ask(served, "PUT", "/v1/rooms/den/members/eve", {})).status == 404
        put = await ask(served, "PUT", "/v1/rooms/den", {"open": True})
        assert (put.status, "again" in put.json()["detail"], put.headers["retry-after"]) == (409, True, "5")
        assert (await ask(served, "DELETE", "/v1/rooms/den")).status == 202  # the same again
        assert [frame for frame in await ann.quiet() if frame["type"] != "presence.changed"] == []


@on_each_pair
async def test_a_room_created_again_is_another_room(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, bob = await furnished(served, "ann", "bob")
        await say(ann, *("old " * 20).split())
        await ann.request(type="room.read", room="den", seq=20)
        await ask(served, "DELETE", "/v1/rooms/den")
        for client in (ann, bob):
            await removed(client)
        await finish(served)
        assert (await ask(served, "DELETE", "/v1/rooms/den")).status == 404
        assert (await ask(served, "PUT", "/v1/rooms/den", {"open": True})).status == 200
        assert (await ask(served, "GET", "/v1/rooms/den/members")).json()["members"] == []
        joined = await ann.request(type="room.join", room="den", after=20)  # beyond the head of the new room
        assert (joined["head"], joined["messages"], joined["truncated"], joined["unread"]) == (0, [], True, 0)
        await bob.request(type="room.join", room="den")
        assert await say(bob, "new") == 1
        assert bodies([(await hear(ann, "room.message"))["data"]]) == [(1, None, "new")]
        assert (await (await served.client("ann")).request(type="room.join", room="den"))["unread"] == 1


async def test_a_room_deleted_a_moment_ago_is_joined_again_before_its_deletion_is_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as served:
        guest = await served.client("guest", claims={"rooms": ["den"]})
        await guest.request(type="room.join", room="den")
        await say(guest, "old", "old")
        updates, late = served.node.rooms.member_updates, list[tuple[Any, Any]]()
        monkeypatch.setattr(updates, "announced", lambda *announced: late.append(announced))
        for by in ("guest", "app"):  # who creates the room again
            await guest.request(type="room.leave", room="den")
            await ask(served, "DELETE", "/v1/rooms/den")
            assert "deleted a moment ago" in (await refusal(guest, type="room.join", room="den"))[1]
            await finish(served)
            if by == "app":
                await ask(served, "PUT", "/v1/rooms/den", {})
            joined = await guest.request(type="room.join", room="den", after=1)
            assert (joined["head"], joined["messages"], joined["truncated"], joined["unread"]) == (0, [], True, 0)
            assert await say(guest, "new", "new") == 2
        monkeypatch.undo()
        for announced in late:
            updates.announced(*announced)
        await served.settle()
        assert await say(guest, "newer") == 3


@on_each_pair
async def test_a_send_admitted_before_a_deletion_is_not_written(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        (ann,) = await furnished(served, "ann")
        async with hold(served.node.store, "append") as held:
            ann.send(type="room.send", room="den", body="late", id="s")
            await held.reached()
            await ask(served, "DELETE", "/v1/rooms/den")
        assert (await hear(ann, "error"))["code"] == "no_such_room"
        await finish(served)
        await served.node.store.put_room("default", "den")
        assert await served.node.store.messages("default", "den", limit=9) == []


@on_each_pair
async def test_a_join_admitted_before_a_deletion_is_refused(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        await furnished(served, "ann")
        await served.node.store.put_member("default", "den", "bob")
        bob = await served.client("bob")
        membership = served.node.rooms.membership
        async with hold(membership, "admit", at="after", when=lambda *args, fresh=False, **kwargs: fresh) as held:
            bob.send(type="room.join", room="den", id="j")
            await held.reached()
            await ask(served, "DELETE", "/v1/rooms/den")
            await until(lambda: not any("den" in (c.rooms or ()) for c in served.node.registry.connections.values()))
        assert (await hear(bob, "error"))["code"] == "not_a_member"


@on_each_pair
async def test_a_node_that_missed_a_deletion_finds_it(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        (ann,) = await furnished(served, "ann")
        await say(ann, "old", "old")
        store = served.node.store
        note = moderation_note(served)
        assert await store.delete_room("default", "den", note)  # as another node does it whose message is lost
        (frames,) = await served.advance(15, [ann])
        changed = [frame["data"] for frame in frames if frame["type"] == "room.changed"]
        assert [(data["removed"], data["reason"]) for data in changed] == [(True, "room deleted")]


@on_each_pair
async def test_a_node_that_missed_a_deletion_and_a_new_room_finds_it(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        (ann,) = await furnished(served, "ann")
        await say(ann, "old", "old")
        store = served.node.store
        assert await store.delete_room("default", "den", moderation_note(served))
        while not (await store.purge_rooms(2**50, 100)).is_over:
            pass
        await store.put_room("default", "den", open=True)
        eve = await served.client("eve")
        joined = await eve.request(type="room.join", room="den")  # the node has the old room in memory
        assert joined["head"] == 0
        assert (await removed(ann))["removed"]
        assert await say(eve, "new") == 1
        assert (await hear(eve, "room.message"))["data"]["seq"] == 1


def moderation_note(served: Served) -> AuditNote:
    return AuditNote("default", served.clock.now_ms(), "desk", "room.deleted", "den")


@on_each_pair
async def test_a_job_that_was_cut_short_is_continued(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, limits={"enabled": False}) as served:
        await furnished(served, "ann")
        for number in range(30):
            await ask(served, "POST", "/v1/rooms/den/messages", {"user": "app", "body": number})
        await ask(served, "DELETE", "/v1/rooms/den")
        store = served.node.store
        async with hold(store, "purge_rooms", at="after") as held:
            running = asyncio.ensure_future(served.job(DeleteRooms.name))
            await held.reached()
            for run in served.greendot.scheduler._runner.runs.values():
                run.stop()
        await running
        (run_of_it,) = await store.job_runs(DeleteRooms.name, 1)
        assert run_of_it.outcome in ("stopped", "ok")
        await finish(served)
        (last, *_) = await store.job_runs(DeleteRooms.name, 1)
        assert last.outcome == "ok"
        assert (await store.put_room("default", "den")).head == 0
        assert await store.messages("default", "den", limit=9) == []


# --- audit ---


@on_each_pair
async def test_the_audit_has_each_change_with_its_actor(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        ann, _ = await furnished(served, "ann", "bob")
        await say(ann, "one", "two")
        at = served.clock.now_ms()
        await ask(served, "PATCH", "/v1/rooms/den/messages/1", {"body": 1, "by": "mod", "reason": "rude"})
        await ask(served, "DELETE", "/v1/rooms/den/messages/2?reason=spam")
        await ask(served, "DELETE", "/v1/rooms/den/messages/2?reason=again")
        for archived in (True, True, False):
            await ask(served, "PUT", "/v1/rooms/den", {"archived": archived})
        calm = {"slow_mode_s": 9, "archived": True, "by": "mod", "reason": "calm down"}
        assert (await ask(served, "PUT", "/v1/rooms/den", calm)).status == 200
        refused = await ask(served, "PUT", "/v1/rooms/den", {"open": True, "by": "mod"})
        assert (refused.status, "`by` and `reason` are for `archived`" in refused.json()["detail"]) == (400, True)
        await ask(served, "DELETE", "/v1/rooms/den?by=mod")
        found = (await ask(served, "GET", "/v1/audit")).json()["entries"]
        assert [(e["number"], e["actor"], e["action"], e["user"], e["ref"], e["reason"]) for e in found] == [
            (1, "mod", "message.edited", "ann", 1, "rude"),
            (2, "settings", "message.deleted", "ann", 2, "spam"),
            (3, "settings", "room.archived", None, None, None),
            (4, "settings", "room.unarchived", None, None, None),
            (5, "mod", "room.slow_mode", None, None, "calm down"),
            (6, "mod", "room.archived", None, None, "calm down"),
            (7, "mod", "room.deleted", None, None, None),
        ]
        assert {(e["at"], e["room"], e["until"]) for e in found} == {(at, "den", None)}
        assert [e["number"] for e in found if e["slow_mode_s"] == 9] == [5]
        for query, numbers in (
            ("after=2&limit=2", [3, 4]),
            ("limit=2", [6, 7]),
            ("before=3", [1, 2]),
            ("user=ann", [1, 2]),
            ("room=den&action=room.archived", [3, 6]),
            ("room=attic", []),
        ):
            page = (await ask(served, "GET", f"/v1/audit?{query}")).json()["entries"]
            assert [entry["number"] for entry in page] == numbers, query
        assert re.search(r"room_moderations_total{.*} 8\.0", (await ask(served, "GET", "/metrics")).body.decode())


async def test_entries_are_removed_after_the_time_in_the_settings() -> None:
    async with serving(audit={"keep_days": 2.0}) as served:
        await furnished(served, "ann")
        await ask(served, "PUT", "/v1/rooms/den", {"archived": True})
        for days, kept in ((1.9, 1), (0.2, 0)):
            served.clock.advance(days * 86_400)
            await served.job("retention")
            assert len((await ask(served, "GET", "/v1/audit")).json()["entries"]) == kept


async def test_a_key_moderates_its_own_tenant_only_and_is_named_in_the_audit() -> None:
    async with serving() as served:
        (ann,) = await furnished(served, "ann")
        await say(ann, "hello")
        key = await make(served, "rooms:write", "rooms:read", name="desk")
        for method, path, body in (
            ("PATCH", "/v1/rooms/den/messages/1", {"body": 1}),
            ("DELETE", "/v1/rooms/den/messages/1", None),
            ("DELETE", "/v1/rooms/den", None),
        ):
            assert (await ask(served, method, path, body, key)).status == 404
        assert (await ask(served, "PUT", "/v1/rooms/den", {"archived": True}, key)).status == 200
        (entry,) = (await ask(served, "GET", "/v1/audit", None, key)).json()["entries"]
        assert (entry["number"], entry["actor"], entry["action"]) == (1, "desk", "room.archived")
        assert (await ask(served, "GET", "/v1/audit")).json()["entries"] == []
        assert bodies((await ann.request(type="room.history", room="den"))["messages"]) == [(1, None, "hello")]
        assert await say(ann, "not archived") == 2
