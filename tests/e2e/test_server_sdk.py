"""SDK of an app backend with a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from e2e.processes import until
from greendot import Server
from greendot.sdk import (
    BadKey,
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    Notification,
    RateLimited,
    Restriction,
    Unreachable,
    UserInfo,
    tokens,
)
from greendot.testing import Served, serving
from greendot.testing.server import API_KEY, SECRET
from receiver import LOOPBACK, receiving
from receiver import SECRET as HOOK_SECRET
from redis_servers.tls import certificates

T = TypeVar("T")


def server_of(served: Served, **options: Any) -> Server:
    options.setdefault("retries", 0)
    return Server(f"http://127.0.0.1:{served.port}", options.pop("api_key", API_KEY), secret=SECRET, **options)


async def ask(call: Callable[..., T], *given: Any, **named: Any) -> T:
    """Call the synchronous SDK in a thread; the server runs in this one."""
    return await asyncio.to_thread(call, *given, **named)


async def test_rooms_are_made_and_members_come_and_go() -> None:
    async with serving() as served:
        with server_of(served) as server:
            assert (await ask(server.put_room, "hall", open=True)).open
            assert (await ask(server.put_room, "hall", bus="hint")).bus == "hint"
            assert (await ask(server.room, "hall")).open
            assert [room.room for room in await ask(server.rooms)] == ["hall"]
            with pytest.raises(NotFound, match="there is no room 'attic'"):
                await ask(server.room, "attic")
            await ask(server.add_member, "hall", "alice", "admin")
            member = await ask(server.add_member, "hall", "bob")
            assert (member.room, member.user, member.role) == ("hall", "bob", "member")
            assert [(one.user, one.role) for one in await ask(lambda: [*server.every_member("hall")])] == [
                ("alice", "admin"),
                ("bob", "member"),
            ]
            await ask(server.remove_member, "hall", "alice")
            assert (await ask(server.members, "hall")).members == ["bob"]
            with pytest.raises(BadRequest, match="role"):
                await ask(server.add_member, "hall", "carol", "king")


async def test_read_receipts_are_turned_on_and_listed() -> None:
    async with serving() as served:
        with server_of(served) as server:
            await ask(server.put_room, "hall", open=True)
            with pytest.raises(NotFound, match="has no read receipts"):
                await ask(server.receipts, "hall")
            assert (await ask(server.put_room, "hall", receipts=True)).receipts
            for number in range(3):
                await ask(server.send, "hall", number, user="system")
            for user, seq in (("alice", 2), ("bob", 3)):
                client = await served.client(user)
                await client.request(type="room.read", room="hall", seq=seq)
            page = await ask(server.receipts, "hall", limit=1)
            assert ([(one.user, one.seq) for one in page.receipts], page.next) == ([("alice", 2)], "alice")
            assert [one.user for one in (await ask(server.receipts, "hall", page.next)).receipts] == ["bob"]
            assert [await ask(server.readers, "hall", seq) for seq in (2, 3)] == [2, 1]


async def test_the_app_reacts_for_users_and_reads_the_counts() -> None:
    async with serving() as served:
        await served.lobby()
        with server_of(served) as server:
            sent = await ask(server.send, "lobby", {"text": "hi"}, user="app")
            first = await ask(server.react, "lobby", sent.seq, "👍🏽", user="alice")
            assert await ask(server.react, "lobby", sent.seq, "👍🏽", user="alice") == first
            await ask(server.react, "lobby", sent.seq, "a b?#%", user="bob")
            message, *_ = await ask(server.messages, "lobby")
            assert [(of.reaction, of.count) for of in message.reactions] == [("👍🏽", 1), ("a b?#%", 1)]
            assert message.reacted == 3
            assert (await ask(server.unreact, "lobby", sent.seq, "👍🏽", user="alice")).seq == 4
            assert await ask(server.unreact, "lobby", sent.seq, "👍🏽", user="alice") == sent
            with pytest.raises(NotFound, match="there is no message 9 in room 'lobby'"):
                await ask(server.react, "lobby", 9, "👍🏽", user="alice")
            with pytest.raises(BadRequest, match="reaction"):
                await ask(server.react, "lobby", sent.seq, "x" * 33, user="alice")
            for wrong in ("", ".", ".."):
                with pytest.raises(ValueError, match="only dots"):
                    await ask(server.react, "lobby", sent.seq, wrong, user="alice")


async def test_users_are_muted_and_banned() -> None:
    async with serving() as served:
        with server_of(served) as server:
            assert (await ask(server.put_room, "hall", open=True, slow_mode_s=30)).slow_mode_s == 30
            assert (await ask(server.room, "hall")).slow_mode_s == 30
            assert (await ask(server.set_slow_mode, "hall", 5, by="mod", reason="calm")).slow_mode_s == 5
            now = served.clock.now_ms()
            mute = await ask(server.mute, "ann", "hall", until=now + 60_000, by="mod", reason="rude")
            assert mute == Restriction("ann", "hall", now + 60_000, now, "mod", "rude")
            ban = await ask(server.ban, "bob")
            assert ban == Restriction("bob", None, None, now, "settings", None)
            assert await ask(lambda: [*server.mutes("hall")]) == [mute]
            assert await ask(lambda: [*server.bans()]) == [ban]
            assert await ask(lambda: [*server.mutes(), *server.bans("hall")]) == []
            await ask(server.unmute, "ann", "hall", by="mod")
            await ask(server.unban, "bob", reason="sorry & more")
            assert await ask(lambda: [*server.mutes("hall"), *server.bans()]) == []
            entries = await ask(lambda: [*server.every_audit_entry()])
            assert [(it.action, it.user, it.actor, it.reason, it.until) for it in entries] == [
                ("room.slow_mode", None, "settings", None, None),
                ("room.slow_mode", None, "mod", "calm", None),
                ("user.muted", "ann", "mod", "rude", now + 60_000),
                ("user.banned", "bob", "settings", None, None),
                ("user.unmuted", "ann", "mod", None, None),
                ("user.unbanned", "bob", "settings", "sorry & more", None),
            ]
            with pytest.raises(NotFound, match="no room"):
                await ask(server.mute, "ann", "attic")
            with pytest.raises(BadRequest, match="past"):
                await ask(server.ban, "ann", until=1)


async def test_messages_and_rooms_are_moderated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greendot.sdk.moderation.MOST_ENTRIES", 2)
    async with serving() as served:
        with server_of(served) as server:
            await ask(server.put_room, "hall", open=True)
            for text in ("rude", "spam", "fine"):
                await ask(server.send, "hall", text, user="ann")
            edit = await ask(server.edit_message, "hall", 1, "***", by="mod", reason="rude", key="e1")
            assert edit == await ask(server.edit_message, "hall", 1, "***", by="mod", key="e1")
            deletion = await ask(server.delete_message, "hall", 2, reason="spam & more")
            assert deletion == await ask(server.delete_message, "hall", 2)
            found = [(it.op, it.ref, it.body) for it in await ask(server.messages, "hall")]
            expected = [(None, None, "rude"), ("erased", None, None), (None, None, "fine")]
            assert found == [*expected, ("edit", 1, "***"), ("delete", 2, None)]
            with pytest.raises(NotFound, match="no message 2"):
                await ask(server.edit_message, "hall", 2, "again")
            assert (await ask(server.archive_room, "hall", by="mod", reason="over")).archived
            assert not (await ask(server.archive_room, "hall", False)).archived
            assert (await ask(server.put_room, "hall", archived=True)).archived
            with pytest.raises(Forbidden, match="archived"):
                await ask(server.send, "hall", "late", user="ann")
            await ask(server.delete_room, "hall", by="mod")
            with pytest.raises(Conflict, match="being deleted") as refused:
                await ask(server.put_room, "hall")
            assert refused.value.retry_after_s == 5
            entries = await ask(lambda: [*server.every_audit_entry()])
            assert [(it.number, it.actor, it.action, it.ref, it.reason) for it in entries] == [
                (1, "mod", "message.edited", 1, "rude"),
                (2, "settings", "message.deleted", 2, "spam & more"),
                (3, "mod", "room.archived", None, "over"),
                (4, "settings", "room.unarchived", None, None),
                (5, "settings", "room.archived", None, None),
                (6, "mod", "room.deleted", None, None),
            ]
            assert [it.number for it in await ask(server.audit, user="ann", limit=1)] == [2]


async def test_lists_longer_than_a_page_are_read_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greendot.sdk.rooms.PAGE", 2)
    monkeypatch.setattr("greendot.sdk.rooms.MOST_MESSAGES", 2)
    monkeypatch.setattr("greendot.sdk.users.PAGE", 2)
    monkeypatch.setattr("greendot.sdk.users.MOST_ASKED", 2)
    names = [f"n{number}" for number in range(4)]
    async with serving() as served:
        for name in names:
            await served.client(name)
        with server_of(served) as server:
            for name in names:
                await ask(server.put_room, name)
                await ask(server.add_member, "n0", name)
                await ask(server.send, "n0", name, user="app")
            assert [room.room for room in await ask(lambda: [*server.every_room()])] == names
            assert [member.user for member in await ask(lambda: [*server.every_member("n0")])] == names
            assert [message.body for message in await ask(lambda: [*server.every_message("n0")])] == names
            assert sorted(await ask(lambda: [*server.everybody_online()])) == names
            assert [entry.user for entry in await ask(server.presence, [*names, "nobody"])] == [*names, "nobody"]


async def test_messages_and_signals_of_the_app_arrive() -> None:
    async with serving() as served:
        await served.lobby()
        alice = await served.joined("alice")
        with server_of(served) as server:
            sent = await ask(server.send, "lobby", {"text": "hi"}, user="shop", name="The shop", key="k1")
            again = await ask(server.send, "lobby", {"text": "hi"}, user="shop", key="k1")
            assert sent == again
            heard = (await alice.receive("room.message"))["data"]
            assert (heard["seq"], heard["user"], heard["name"], heard["body"]) == (
                sent.seq,
                "shop",
                "The shop",
                {"text": "hi"},
            )
            (message,) = await ask(server.messages, "lobby")
            assert (message.body, message.user) == ({"text": "hi"}, "shop")
            await ask(server.signal_room, "lobby", "wave", {"x": 1}, sender="shop")
            assert (await alice.receive("signal"))["data"]["from"] == "shop"
            await ask(server.signal_user, "alice", "poke")
            assert (await alice.receive("signal"))["data"]["kind"] == "poke"
            assert (await ask(server.present, "lobby")).users == ["alice"]
            bob = await served.joined("bob")
            bob.send(type="typing.start", room="lobby")
            await bob.quiet()
            assert [typer.user for typer in await ask(server.typing, "lobby")] == ["bob"]
            with pytest.raises(BadRequest, match="at most 65536 bytes"):
                await ask(server.send, "lobby", "x" * 70_000, user="shop")


async def test_a_notification_is_written_once_and_its_fate_can_be_seen() -> None:
    async with serving() as served:
        alice = await served.client("alice")
        with server_of(served) as server:
            first = await ask(server.notify, "alice", "order.shipped", {"order": 17}, key="order-17", ttl=60)
            again = await ask(server.notify, "alice", "order.shipped", {"order": 17}, key="order-17")
            assert (first.new, again.new, first.id) == (True, False, again.id)
            assert (await alice.receive("notification.created"))["data"]["body"] == {"order": 17}
            many = [Notification(user=user, kind="news", body=1) for user in ("alice", "bob", "alice")]
            assert [made.seq for made in await ask(server.notify_many, many)] == [2, 1, 3]
            inbox = await ask(server.inbox, "alice", limit=2, filter="unread")
            assert [entry.seq for entry in inbox.notifications] == [2, 3]
            assert (inbox.unread, inbox.unseen, inbox.head) == (3, 3, 3)
            (oldest,) = (await ask(server.inbox, "alice", after=0, limit=1)).notifications
            assert (oldest.body, oldest.kind) == ({"order": 17}, "order.shipped")
            assert oldest.expires_at is not None
            with pytest.raises(BadRequest, match=r"notifications\[1\]\.user"):
                await ask(server.notify_many, [many[0], Notification(user="no id", kind="news")])


async def test_presence_sessions_status_and_contacts() -> None:
    async with serving() as served:
        await served.client("alice", device="laptop")
        with server_of(served) as server:
            alice, bob = await ask(server.presence, ["alice", "bob"])
            assert (alice.state, alice.devices, bob.state) == ("online", ["laptop"], "offline")
            assert [entry.user for entry in await ask(server.presence, "alice")] == ["alice"]
            page = await ask(server.online)
            assert (page.users, page.count, page.next) == (["alice"], 1, None)
            (session,) = await ask(server.sessions, "alice")
            assert (session.user, session.device, session.state) == ("alice", "laptop", "online")
            busy = await ask(server.set_status, "alice", "busy", text="in a call")
            assert (busy.state, busy.status_text) == ("busy", "in a call")
            info = {"avatar": "/a.png"}
            kept = await ask(server.set_info, "alice", name="Alice A", info=info)
            assert (kept.name, kept.info) == ("Alice A", info)
            assert (await ask(server.set_info, "alice", name=None)).info == info
            assert (await ask(server.info, "alice")) == UserInfo(None, info)
            with pytest.raises(BadRequest, match="1024 bytes"):
                await ask(server.set_info, "alice", info={"text": "x" * 1_024})
            await ask(server.remove_info, "alice")
            assert (await ask(server.info, "alice")) == UserInfo()
            with pytest.raises(ValueError, match="`info` may have at most 1024 bytes"):
                server.token("alice", info={"text": "x" * 1_024})
            contact = await ask(server.add_contact, "alice", "bob")
            assert (contact.user, contact.contact) == ("alice", "bob")
            await ask(server.remove_contact, "alice", "bob")


async def test_what_is_revoked_or_disconnected_is_closed() -> None:
    async with serving() as served:
        sockets = [await served.client("alice", claims={"jti": f"t{number}"}) for number in range(4)]
        with server_of(served) as server:
            sessions = [socket.welcome["session"] for socket in sockets]
            assert await ask(server.disconnect, sessions[0])
            assert (await sockets[0].closed()).code == 4503
            assert not await ask(server.disconnect, "nobody-s")
            assert (await ask(server.revoke_session, sessions[1])).closed == 1
            for missing in (None, ""):
                with pytest.raises(ValueError, match="`revoke_user` revokes every token"):
                    await ask(server.revoke_token, missing, user="alice")
            assert (await ask(server.revoke_token, "t2", user="alice")).closed == 1
            await served.advance(1)
            assert (await ask(server.revoke_user, "alice")).closed == 1
            assert [(await socket.closed()).code for socket in sockets[1:]] == [4501, 4501, 4501]
            with pytest.raises(BadRequest, match="`before` is in the future"):
                await ask(server.revoke_user, "alice", before=10**14)
            others = [await served.client(user) for user in ("bob", "carol")]
            await served.advance(1)
            assert (await ask(server.revoke_all)).closed == 2
            assert [(await socket.closed()).code for socket in others] == [4501, 4501]


async def test_a_token_of_the_sdk_grants_what_it_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as served:
        # The SDK uses the server's clock, which does not advance by itself.
        monkeypatch.setattr(tokens, "time", SimpleNamespace(time=lambda: served.clock.now_ms() / 1000))
        with server_of(served) as server:
            made = server.token("alice", name="Alice", rooms=["team-*"], ttl=60)
        client = await served.socket()
        assert (await client.hello(made))["user"] == "alice"
        assert (await client.request(type="room.join", room="team-1"))["head"] == 0


async def test_a_wrong_key_and_an_empty_key_are_refused() -> None:
    async with serving() as served:
        with server_of(served, api_key="wrong") as stranger, pytest.raises(BadKey):
            await ask(stranger.online)
        with server_of(served, api_key="") as nobody, pytest.raises(BadKey):
            await ask(nobody.online)


async def test_a_call_beyond_the_rate_is_refused_with_the_time_to_wait() -> None:
    async with serving(limits={"tenant_sends_per_s": 1}) as served:
        with server_of(served) as server:
            await ask(server.notify_many, [Notification(user="alice", kind="news") for _ in range(50)])
            with pytest.raises(RateLimited) as caught:
                await ask(server.notify_many, [Notification(user="alice", kind="news") for _ in range(50)])
            assert caught.value.code == "rate_limited"
            assert caught.value.retry_after_s is not None
            assert (await ask(server.inbox, "alice")).head == 50


async def test_a_server_with_tls_is_believed_by_its_certificate_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificates(tmp_path)
    async with serving(tls={"cert": str(made.certificate), "key": str(made.key)}) as served:
        url = f"https://127.0.0.1:{served.port}"
        with Server(url, API_KEY, retries=0) as stranger, pytest.raises(Unreachable):
            await ask(stranger.online)
        monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))
        with Server(url, API_KEY, retries=0) as server:
            assert (await ask(server.online)).count == 0


async def test_a_webhook_of_the_real_server_is_believed() -> None:
    async with receiving() as app:
        hook = LOOPBACK | {"url": app.url, "secret": HOOK_SECRET}
        async with serving(webhooks=hook) as served:
            await served.lobby()
            with server_of(served, webhook_secret=HOOK_SECRET) as server:
                await ask(server.send, "lobby", "hi", user="shop")
                await until(lambda: bool(app.of("room.message")))
                request = app.taken[-1]
                delivery = server.verify_webhook(request.body, request.headers, tolerance_s=10**9)
        assert delivery.events[-1].type == "room.message"
