"""Webhook events of a whole server: presence, rooms, messages, and retries."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from e2e.processes import Process, ask, greendot, running, until
from greendot.testing import serving
from greendot.testing.server import API_KEY
from receiver import LOOPBACK, SECRET, by_type, receiving

OTHER_SECRET = "another secret of a webhook, for tests"


async def test_an_app_receives_every_event_it_subscribes_to() -> None:
    async with receiving() as app, serving(webhooks={"url": app.url, "secret": SECRET} | LOOPBACK) as served:
        await served.lobby()
        ann = await served.joined("ann")
        await until(lambda: len(app.of("user.online", "room.occupied")) == 2)
        sent = await ann.request(type="room.send", room="lobby", body={"text": "hi"})
        await ask(
            served.port,
            "POST",
            "/v1/notifications",
            {"user": "ann", "kind": "news", "body": {"n": 1}},
            Authorization=f"Bearer {API_KEY}",
        )
        await ann.request(type="inbox.read", through=1)
        mute = {"by": "mod", "reason": "rude"}
        await ask(served.port, "PUT", "/v1/rooms/lobby/mutes/bob", mute, Authorization=f"Bearer {API_KEY}")
        ann.send(type="bye")
        await ann.closed()
        await until(lambda: len(app.events) == 8)
        app.verify()
        found = by_type(app.events)
        assert found["user.online"] == found["user.offline"] == [{"user": "ann"}]
        assert found["room.occupied"] == found["room.vacated"] == [{"room": "lobby"}]
        (message,), (created,), (updated,) = (
            found[kind] for kind in ("room.message", "notification.created", "notification.updated")
        )
        assert (message["id"], message["seq"], message["body"]) == (sent["id"], sent["seq"], {"text": "hi"})
        assert (created["user"], created["body"]) == ("ann", {"n": 1})
        assert updated == {"user": "ann", "state": "read", "ids": [created["id"]]}
        entry = {"number": 1, "actor": "mod", "action": "user.muted", "room": "lobby", "user": "bob", "reason": "rude"}
        assert found["audit.created"] == [entry | {"ref": None, "until": None, "slow_mode_s": None}]


async def test_only_the_subscribed_webhook_events_are_sent() -> None:
    hook = {"url": "", "secret": SECRET, "events": ("room.message",)} | LOOPBACK
    async with receiving() as app, serving(webhooks=hook | {"url": app.url}) as served:
        await served.lobby()
        ann = await served.joined("ann")
        await ann.request(type="room.send", room="lobby", body=1)
        await until(lambda: len(app.events) == 1)
        ann.send(type="bye")
        await ann.closed()
        await served.settle()
    assert [event["type"] for event in app.events] == ["room.message"]


async def test_a_device_more_or_a_short_absence_is_no_news() -> None:
    async with receiving() as app, serving(webhooks={"url": app.url, "secret": SECRET} | LOOPBACK) as served:
        phone = await served.client("ann", device="phone")
        laptop = await served.client("ann", device="laptop")
        await phone.end()
        await served.until_gone(1)
        await laptop.end()
        await served.until_gone()
        await served.client("ann", device="laptop")
        await served.advance(120)
        await until(lambda: bool(app.of("user.offline")))  # at last, after the timeout of the silent session
        assert [event["type"] for event in app.events] == ["user.online", "user.offline"]


async def test_invisible_users_come_and_go_unseen() -> None:
    async with receiving() as app, serving(webhooks={"url": app.url, "secret": SECRET} | LOOPBACK) as served:
        await served.lobby()
        ann = await served.client("ann")
        await ann.request(type="status.set", status="invisible")
        await ann.request(type="room.join", room="lobby")
        ann.send(type="bye")
        await ann.closed()
        await served.joined("bob")
        await until(lambda: len(app.of("room.occupied")) == 1)
        assert [(e["type"], e["data"].get("user")) for e in app.of("user.online", "user.offline")] == [
            ("user.online", "ann"),
            ("user.offline", "ann"),  # when she became invisible
            ("user.online", "bob"),
        ]


async def test_two_tenants_with_the_same_names_receive_only_their_own_webhooks() -> None:
    async with receiving() as one, receiving() as two:
        hooks = {
            "webhooks": {"url": one.url, "secret": SECRET} | LOOPBACK,
            "tenants": {"acme": {"webhooks": {"url": two.url, "secret": OTHER_SECRET}}, "plain": {}},
        }
        async with serving(**hooks) as served:
            for tenant in ("default", "acme", "plain"):
                await served.node.store.put_room(tenant, "lobby", open=True)
                for user in ("ann", "bob"):
                    client = await served.joined(user, claims={"tenant": tenant})
                    await client.request(type="room.send", room="lobby", body=tenant)
            await until(lambda: len(one.events) == len(two.events) == 5)
        for app, tenant, secret in ((one, "default", SECRET), (two, "acme", OTHER_SECRET)):
            app.verify(secret)
            assert {event["tenant"] for event in app.events} == {tenant}
            assert {message["body"] for message in by_type(app.events)["room.message"]} == {tenant}


async def test_a_server_with_a_hook_that_hangs_serves_and_stops_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with receiving(lambda events: "hang") as app:
            hook = {"url": app.url, "secret": SECRET, "timeout_s": 30} | LOOPBACK
            async with serving(webhooks=hook) as served:
                await served.lobby()
                ann = await served.joined("ann")
                await until(lambda: len(app.requests) >= 1)
                for n in range(20):
                    await ann.request(type="room.send", room="lobby", body=n)
                began = asyncio.get_running_loop().time()
            assert asyncio.get_running_loop().time() - began < 6
    assert SECRET not in caplog.text


# --- processes ---


def hooked(url: str, **more: str) -> dict[str, str]:
    return {
        "GREENDOT_WEBHOOKS_URL": url,
        "GREENDOT_WEBHOOKS_SECRET": SECRET,
        "GREENDOT_WEBHOOKS_ALLOW_PRIVATE": "127.0.0.0/8",
        "GREENDOT_WEBHOOKS_BATCH_WAIT_MS": "20",
    } | more


async def say(server: Process, numbers: range) -> list[int]:
    """Send messages and return the numbers that the server acknowledged before its end."""
    said: list[int] = []
    for n in numbers:
        try:
            answer = await server.ask("POST", "/v1/rooms/r1/messages", {"user": "ann", "body": n})
        except (OSError, IndexError, ValueError):
            break
        assert answer.status in (200, 201), answer
        said.append(n)
    return said


def numbers_in(events: list[dict[str, Any]]) -> list[int]:
    return [event["data"]["body"] for event in events if event["type"] == "room.message"]


@pytest.mark.timeout(90)
async def test_no_record_that_was_acknowledged_is_missed_when_the_server_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    async with receiving(lambda events: 200 if len(app.requests) % 3 else 500) as app:
        said: list[int] = []
        for life in range(3):
            async with running(tmp_path, "--host", "127.0.0.1", **hooked(app.url)) as server:
                assert (await server.ask("PUT", "/v1/rooms/r1", {"open": True})).status in (200, 201)
                first = life * 1000
                room_messages = asyncio.get_running_loop().create_task(say(server, range(first, first + 1000)))
                seen = len(app.requests)
                # The killed server holds the queue until its lease ends; messages are sent meanwhile.
                await asyncio.sleep(0.3)
                if life == 0:
                    await until(lambda seen=seen: len(app.requests) >= seen + 3)  # type: ignore[misc]
                await server.kill()
                said += await room_messages
        assert len(said) > 20
        # Of a hundred events that are refused at every third attempt, one is refused six times and waits a minute.
        app.behave = lambda events: 200
        async with running(tmp_path, "--host", "127.0.0.1", **hooked(app.url)):
            await until(lambda: {*numbers_in(app.events)} >= {*said}, 40)
        app.verify()
        ids = {event["id"]: event["data"]["body"] for event in app.events if event["type"] == "room.message"}
        assert len(ids) == len({*ids.values()}), "retries of an event must keep its id"


async def test_dead_letters_are_listed_and_replayed_from_the_command_line(tmp_path: Path) -> None:
    async with receiving(lambda events: 500) as app:
        given = hooked(app.url, GREENDOT_WEBHOOKS_GIVE_UP_AFTER_S="0.001", GREENDOT_WEBHOOKS_EVENTS="room.message")
        async with running(tmp_path, "--host", "127.0.0.1", **given) as server:
            await server.ask("PUT", "/v1/rooms/r1", {"open": True})
            await say(server, range(1, 3))
            async with asyncio.timeout(30):
                while (dead := await greendot(tmp_path, "webhooks", "dead", **given)).out.count(
                    "responded with 500"
                ) < 2:
                    pass
            listed = await greendot(tmp_path, "webhooks", "list", **given)
            assert listed.out.splitlines()[1].split()[:5] == ["default", "on", "0", "0", "2"]
            assert dead.code == 0
            assert "room.message" in dead.out
            assert SECRET not in dead.out + listed.out
            app.behave = lambda events: 200
            none = await greendot(tmp_path, "webhooks", "replay", "--id", "99", **given)
            assert "Not found, or not dead letters: 99." in none.out
            replayed = await greendot(tmp_path, "webhooks", "replay", "--all", **given)
            assert "2 events will be sent." in replayed.out
            await until(lambda: sorted(numbers_in(app.events)) == [1, 2])
            assert "There are no dead letters." in (await greendot(tmp_path, "webhooks", "dead", **given)).out


async def test_a_webhook_ping_prints_the_response_of_the_app(tmp_path: Path) -> None:
    async with receiving() as app:
        fine = await greendot(tmp_path, "webhooks", "test", **hooked(app.url))
        assert (fine.code, fine.out) == (0, "The app responded with 200. 'ok'\nThe app accepted the ping.\n")
        app.verify()
        assert [event["type"] for event in app.requests[0].events] == ["ping"]
        app.behave = lambda events: 404
        wrong = await greendot(tmp_path, "webhooks", "test", **hooked(app.url))
        assert (wrong.code, wrong.out) == (2, "The app responded with 404. 'ok'\n")
        assert "It must respond with a status from 200 to 299" in wrong.err
        refused = await greendot(tmp_path, "webhooks", "test", f"https://localhost:{app.port}/")
        assert refused.code == 2
        assert "not a public address" in refused.err
        assert "signed with this secret:" in refused.out
        assert len(app.requests) == 2
        unset = await greendot(tmp_path, "webhooks", "test")
        assert "has no webhook" in unset.err
