"""Push end to end: a real server, a fake FCM on a real socket, and virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.pushed import Pushed, pushing
from fake_providers import Answer
from greendot.errors import EngineUnavailable
from greendot.presence.model import Snapshot
from greendot.testing import WireClient
from greendot.testing.clock import START_MS
from greendot.testing.hold import hold
from postgres_server import fresh_schema
from redis_servers import redis_server


async def places(
    stack: AsyncExitStack, folder: Path, kind: str, engine: str, request: pytest.FixtureRequest
) -> dict[str, Any]:
    """Return the settings of a store and an engine of this kind, both empty."""
    sections: dict[str, Any] = {"store": {"url": f"sqlite:///{folder / 'greendot.db'}"}}
    if kind == "postgres":
        place = await stack.enter_async_context(fresh_schema(request.getfixturevalue("postgres")))
        sections["store"] = {"url": place, "migrate": True}
    if engine == "redis":
        sections["engine"] = {"url": f"redis://127.0.0.1:{stack.enter_context(redis_server('redis', folder))}"}
    return sections


async def active(there: Pushed, client: WireClient) -> None:
    client.send(type="activity")
    await client.quiet()
    await there.served.settle()


async def test_who_is_away_is_pushed_at_once(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        await there.device()
        made = await there.notify(importance="high", collapse="c1")
        assert await there.work() == [f"{made}.phone"]
        (message,) = there.fcm.taken
        assert (message.token, message.notification.title, message.notification.body) == (
            "token-ann-phone",
            "Hi",
            "there",
        )
        assert (message.android.priority, message.android.collapse_key) == ("HIGH", "c1")
        assert await there.reason(made) == "offline"
        (shown,) = (await there.http("GET", "/v1/users/ann/inbox")).json()["notifications"]
        assert shown["push_at"] == START_MS
        assert await there.work(100_000) == [f"{made}.phone"], "pushed more than once"


async def test_who_is_active_is_pushed_only_if_it_stays_unseen(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        ann = await there.served.client("ann", device="phone")
        await there.device()
        seen, unseen = await there.notify(), await there.notify()
        assert await there.work() == []
        assert await there.reason(seen) == "active"
        await ann.request(type="inbox.seen", ids=[seen])
        assert await there.work(59, [ann]) == []
        assert await there.work(1, [ann]) == [f"{unseen}.phone"]
        assert [await there.reason(one) for one in (seen, unseen)] == ["seen", "unseen"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_an_unacknowledged_notification_is_pushed_after_enough_redeliveries(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    async with AsyncExitStack() as stack:
        sections = await places(stack, tmp_path, kind, "memory", request)
        kinds = {"alarm": {"promise": "acknowledged"}}
        there = await stack.enter_async_context(pushing(tmp_path, kinds=kinds, **sections))
        ann = await there.served.client("ann", device="phone")
        await there.device()
        ignored, acked = await there.notify(kind="alarm"), await there.notify(kind="alarm")
        await ann.request(type="inbox.read", ids=[ignored, acked])
        await there.work(0, [ann])
        assert await there.reason(ignored) == "awaiting_ack"
        await ann.request(type="inbox.ack", ids=[acked])
        for _ in range(8):
            assert await there.work(60, [ann]) == []
        assert there.served.node.metrics.inbox_unacknowledged_total == 0
        assert await there.work(15, [ann]) == [f"{ignored}.phone"]
        assert [await there.reason(one) for one in (ignored, acked)] == ["unacknowledged", "seen"]
        await there.served.advance(1, [ann])
        assert there.served.node.metrics.inbox_unacknowledged_total == 1


async def test_who_is_idle_is_held_for_less(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        ann = await there.served.client("ann")
        await there.device()
        await there.served.advance(301, [ann])
        made = await there.notify()
        assert await there.work(29, [ann]) == []
        assert await there.reason(made) == "idle"
        assert await there.work(1, [ann]) == [f"{made}.phone"]


async def test_who_goes_away_is_pushed_when_that_is_known_and_the_hold_is_over(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        ann = await there.served.client("ann")
        await there.device()
        made = await there.notify()
        await there.work()
        await ann.reset()
        await there.served.until_gone()
        assert await there.work(60) == [f"{made}.phone"]


async def test_who_is_busy_is_left_alone_until_that_ends_unless_it_is_critical(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        ann = await there.served.client("ann")
        await there.device()
        until = there.served.clock.now_ms() + 600_000
        await ann.request(type="status.set", status="busy", until=until)
        await ann.close()
        await there.served.until_gone()
        await there.served.advance(60)
        made, urgent = await there.notify(), await there.notify(importance="critical")
        assert await there.work() == [f"{urgent}.phone"], "the status busy must also count for an offline user"
        assert [await there.reason(one) for one in (made, urgent)] == ["busy", "critical"]
        for _ in range(8):
            assert await there.work(60) == [f"{urgent}.phone"]
        assert (await there.work(60))[1:] == [f"{made}.phone"]


@pytest.mark.parametrize("engine", ["memory", "redis"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_push_held_for_busy_is_checked_when_the_user_ends_it(
    tmp_path: Path, kind: str, engine: str, request: pytest.FixtureRequest
) -> None:
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(
            pushing(tmp_path, **await places(stack, tmp_path, kind, engine, request))
        )
        ann = await there.served.client("ann")
        await there.device()
        await ann.request(type="status.set", status="busy")
        await there.served.settle()
        made = await there.notify()
        assert await there.work() == []
        assert await there.reason(made) == "busy"
        await ann.request(type="status.set", status="auto")
        await there.served.settle()
        await there.work()
        assert await there.reason(made) == "active", "the push must be checked at once"
        there.served.clock.advance(60)
        assert await there.work() == [f"{made}.phone"]


async def test_a_push_held_for_busy_is_sent_when_the_backend_ends_it(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        await there.device()
        await there.http("PUT", "/v1/users/ann/status", {"status": "busy"})
        made = await there.notify()
        assert await there.work() == []
        await there.http("PUT", "/v1/users/ann/status", {"status": "auto"})
        await there.served.settle()
        assert await there.work() == [f"{made}.phone"]


async def test_a_push_is_sent_at_the_end_of_busy_although_the_end_was_moved(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        ann = await there.served.client("ann")
        await there.device()
        now = there.served.clock.now_ms()
        await ann.request(type="status.set", status="busy", until=now + 3_600_000)
        made = await there.notify()
        assert await there.work(65, [ann]) == []
        await ann.request(type="status.set", status="busy", until=there.served.clock.now_ms() + 7_000)
        await there.served.settle()
        assert await there.work() == []
        assert await there.work(6, [ann]) == []
        assert await there.work(1, [ann]) == [f"{made}.phone"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_busy_that_ends_while_the_worker_decides_does_not_delay_the_push(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """The worker has read `busy` and has not recorded that it waits."""
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(
            pushing(tmp_path, **await places(stack, tmp_path, kind, "memory", request))
        )
        ann = await there.served.client("ann")
        await there.device()
        await ann.request(type="status.set", status="busy")
        made = await there.notify()
        await there.served.advance(60, [ann])
        async with hold(there.served.node.store, "settle_pushes") as held:
            working = asyncio.ensure_future(there.work())
            await held.reached()
            await ann.request(type="status.set", status="auto")
            await there.served.settle()
        assert await working == [f"{made}.phone"], "the worker must check again at once"


async def test_what_is_critical_is_pushed_to_an_active_user_at_once(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        ann = await there.served.joined("ann")
        await there.device()
        await active(there, ann)
        urgent, usual = await there.notify(importance="critical", room="lobby"), await there.notify(importance="high")
        assert await there.work() == [f"{urgent}.phone"]
        assert [await there.reason(one) for one in (urgent, usual)] == ["critical", "active"]


async def test_quiet_hours_are_those_of_the_users_clock(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        await there.device()
        # The time is 08:00 in UTC and 03:00 in New York.
        chosen = {"time_zone": "America/New_York", "quiet_hours": {"begins": "22:00", "ends": "07:00"}}
        assert (await there.http("PUT", "/v1/users/ann/push", chosen)).json() == chosen
        assert (await there.http("GET", "/v1/users/ann/push")).json() == chosen
        made = await there.notify()
        assert await there.work() == []
        assert await there.reason(made) == "quiet_hours"
        assert await there.work(4 * 3600 - 1) == []
        assert await there.work(1) == [f"{made}.phone"]


async def test_who_is_in_the_very_room_sees_it_there(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        ann = await there.served.joined("ann")
        await there.device()
        about, other = await there.notify(room="lobby"), await there.notify(room="elsewhere")
        for _ in range(2):
            await active(there, ann)
            await there.work(60, [ann])
        assert await there.work() == [f"{other}.phone"]
        assert await there.reason(about) == "in_the_room"
        await ann.request(type="room.leave", room="lobby")
        await there.served.settle()
        assert await there.work(60, [ann]) == [f"{other}.phone", f"{about}.phone"]


async def test_an_idle_session_in_the_room_is_not_there(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        ann = await there.served.joined("ann")
        await there.device()
        await there.served.advance(301, [ann])
        made = await there.notify(room="lobby")
        assert await there.work(30, [ann]) == [f"{made}.phone"]


async def test_where_the_engine_does_not_answer_it_is_pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(tenant: str, users: Sequence[str]) -> list[Snapshot]:
        raise EngineUnavailable("away")

    async with pushing(tmp_path) as there:
        await there.served.client("ann")
        await there.device()
        made = await there.notify()
        monkeypatch.setattr(there.served.node.engine, "read", away)
        assert await there.work() == [f"{made}.phone"]
        assert await there.reason(made) == "presence_unknown"


# --- providers ---


async def test_a_token_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        await there.device()
        await there.device(device="tablet")
        there.fcm.gone = {"token-ann-phone"}
        made = await there.notify()
        assert await there.work() == [f"{made}.tablet"]
        left = (await there.http("GET", "/v1/users/ann/devices")).json()["devices"]
        assert [device["device"] for device in left] == ["tablet"]


async def test_a_provider_in_trouble_gets_it_later_and_once(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        await there.device()
        there.fcm.script.extend([Answer(503, b"", {"Retry-After": "30"}), Answer(500)])
        made = await there.notify()
        assert await there.work() == []
        assert await there.work(29) == []
        await there.work(10)
        for _ in range(5):
            await there.work(10)
        assert there.fcm.keys == {f"{made}.phone": 1}


async def test_a_provider_that_hangs_holds_up_neither_the_server_nor_more_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greendot.app.push.FINISH_S", 0.1)
    async with pushing(tmp_path, push={"at_once": 3, "concurrency": 8, "timeout_s": 10}) as there:
        for number in range(20):
            await there.device(f"u{number}")
            await there.notify(f"u{number}")
        there.fcm.behave = lambda asked: None if asked.path == "/token" else "hang"
        worker = there.served.greendot.pushing
        assert worker is not None
        worker.worker.start()
        async with asyncio.timeout(10):
            while len(asked := [one for one in there.fcm.asked if one.path != "/token"]) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # (the condition has no event)
        assert len(asked) == 3, "wrong number of concurrent calls"
        counts = await there.served.node.store.push_counts(there.served.clock.now_ms())
        assert (counts.waiting, counts.due >= 12) == (20, True), "the other pushes must stay in the store"
        await (await there.served.client("ann")).quiet()


# --- queueing ---


async def test_what_is_not_to_be_pushed_is_not_even_queued(tmp_path: Path) -> None:
    async with pushing(tmp_path, push={"kinds": {"quiet": {"enabled": False}}}) as there:
        await there.device()
        made = [await there.notify(push=False), await there.notify(kind="quiet")]
        store = there.served.node.store
        assert [await store.push_of("default", one) for one in made] == [[], []]
        assert (await store.push_counts(there.served.clock.now_ms())).waiting == 0
        low = await there.notify(importance="low")
        assert await there.work() == []
        assert await there.reason(low) == "importance_low"


async def test_a_tenant_with_its_own_section_uses_its_push_settings(tmp_path: Path) -> None:
    own = {"acme": {"push": {"enabled": False}}, "slow": {"push": {"active_hold_s": 5}}}
    async with pushing(tmp_path, tenants=own) as there:
        settings = there.served.greendot.settings
        assert [settings.push_of(name).pushes for name in ("acme", "slow", "any")] == [False, True, True]
        assert settings.push_of("slow").active_hold_s == 5


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"importance": "very"}, "importance"),
        ({"room": "no room!"}, "room"),
        ({"collapse": ""}, "collapse"),
        ({"push": "no"}, "push"),
    ],
)
async def test_what_cannot_be_meant_is_refused(tmp_path: Path, field: dict[str, Any], said: str) -> None:
    async with pushing(tmp_path) as there:
        body = {"user": "ann", "kind": "ping", "body": {}} | field
        answer = await there.http("POST", "/v1/notifications", body)
        assert answer.status == 400
        assert said in answer.json()["detail"]


async def test_what_was_decided_and_done_is_in_the_metrics(tmp_path: Path) -> None:
    async with pushing(tmp_path) as there:
        await there.device()
        await there.notify()
        await there.work()
        text = (await there.http("GET", "/metrics")).body.decode()
        for name, value in {
            "push_decided_offline_total": 1,
            "push_fcm_sent_total": 1,
            "push_apns_gone_total": 0,
        }.items():
            (line,) = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
            assert line.endswith(f" {value}.0")
