"""Values of `/metrics` match the events of the test."""

from __future__ import annotations

import asyncio
import re

import pytest

from e2e.narrow import peer
from e2e.processes import ask
from greendot.admin import metrics
from greendot.engine.messages import Part
from greendot.errors import StoreUnavailable
from greendot.inbox.kinds_model import AGAIN_S
from greendot.testing import Served, serving
from greendot.testing.server import API_KEY


async def shown(served: Served, name: str, **labels: str) -> float:
    """Return the value of one series."""
    wanted = {"node": served.node.incarnation} | labels
    for line in (await ask(served.port, "GET", "/metrics")).body.decode().splitlines():
        found = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line)
        if found and found[1] == name and dict(re.findall(r'(\w+)="([^"]*)"', found[2])) == wanted:
            return float(found[3])
    raise AssertionError(f"{name} {wanted} is not in /metrics")


async def test_what_waits_for_a_reader_that_stops_and_what_is_dropped_is_shown_by_type() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        speaker, slow = await served.joined("speaker"), await peer(served, "alice", "lobby")
        assert await shown(served, "realtime_outbox_connections") == 0
        slow.stop_reading()
        for number in range(120):
            body = "x" * 30_000
            await speaker.request(type="signal.send", room="lobby", kind="n", key=f"k{number}", body=body)
        served.clock.advance(metrics.KEEP_S)
        assert await shown(served, "realtime_outbox_connections") == 1
        assert await shown(served, "realtime_outbox_frames") > 20
        assert 900_000 < await shown(served, "realtime_outbox_bytes") <= 1024 * 1024
        dropped = await shown(served, "realtime_dropped_total", type="signal", reason="slow")
        assert dropped == await shown(served, "realtime_dropped_ephemeral_total") > 20
        assert await shown(served, "realtime_dropped_total", type="signal", reason="shed") == 0


async def test_what_a_newer_signal_of_its_key_replaces_is_shown_by_type_and_nothing_is_unaccounted_for() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        speaker, slow = await served.joined("speaker"), await peer(served, "alice", "lobby")
        assert await shown(served, "realtime_coalesced_total", type="signal") == 0
        slow.stop_reading()
        sent = 60
        for number in range(sent):
            body = [number, "x" * 30_000]
            await speaker.request(type="signal.send", room="lobby", kind="cursor", key="speaker", body=body)
        served.clock.advance(metrics.KEEP_S)
        coalesced = await shown(served, "realtime_coalesced_total", type="signal")
        assert coalesced > 20
        assert await shown(served, "realtime_dropped_total", type="signal", reason="slow") == 0
        slow.go_on_reading()
        arrived = [(await slow.receive("signal"))["data"]["body"][0] for _ in range(sent - int(coalesced))]
        assert arrived == sorted(arrived)
        assert arrived[-1] == sent - 1


async def test_how_many_sessions_users_have_is_a_picture_of_now() -> None:
    async with serving() as served:
        phone = await served.client("alice", device="phone")
        await served.client("alice", device="desk")
        await served.client("bob")
        assert await shown(served, "ws_sessions_per_user_bucket", le="1") == 1
        assert await shown(served, "ws_sessions_per_user_bucket", le="2") == 2
        assert await shown(served, "ws_sessions_per_user_sum") == 3
        phone.send(type="bye")
        assert (await phone.closed()).code == 1000
        await served.settle()
        assert await shown(served, "ws_sessions_per_user_bucket", le="1") == 2
        assert await shown(served, "ws_closed_total", code="1000") == 1
        assert await shown(served, "realtime_hello_seconds_count") == 3


async def test_a_notification_is_counted_for_each_device_it_is_sent_to() -> None:
    async with serving() as served:
        for device in ("phone", "desk"):
            await served.client("alice", device=device)
        body = {"user": "alice", "kind": "ping", "body": {}}
        answer = await ask(served.port, "POST", "/v1/notifications", body, Authorization=f"Bearer {API_KEY}")
        assert answer.status in (200, 201)
        await served.settle()
        assert await shown(served, "inbox_notified_total") == 1
        assert await shown(served, "notification_live_push_total") == 2


async def test_what_is_sent_again_is_counted_as_that_and_not_as_another_notification() -> None:
    async with serving(kinds={"alarm": {"promise": "acknowledged"}}) as served:
        phone = await served.client("alice")
        body = {"user": "alice", "kind": "alarm", "body": {}}
        await ask(served.port, "POST", "/v1/notifications", body, Authorization=f"Bearer {API_KEY}")
        await served.settle()
        await served.advance(AGAIN_S + 0.1, [phone])
        assert await shown(served, "inbox_redelivered_total") == 1
        assert await shown(served, "notification_live_push_total") == 1


async def looked_through(served: Served, *, intact: bool) -> None:
    """Report the part as found and wait, advancing the clock, until the node's resync has ended."""
    served.node.found(Part(), intact=intact)
    async with asyncio.timeout(10):
        while len(served.node.tasks):
            served.clock.advance(0.1)
            served.node.timers.tick()
            await asyncio.sleep(0.001)


async def test_only_what_was_lost_is_recovered_from() -> None:
    async with serving() as served:
        await looked_through(served, intact=True)  # as every hour
        assert await shown(served, "realtime_resync_total") == 1
        assert await shown(served, "presence_recovery_seconds_count") == 0
        await looked_through(served, intact=False)
        assert await shown(served, "presence_recovery_seconds_count") == 1


async def test_who_asks_often_has_the_store_asked_once_a_second() -> None:
    async with serving() as served:
        ping, pings = served.node.store.ping, 0

        async def counted() -> None:
            nonlocal pings
            pings += 1
            await ping()

        served.node.store.ping = counted  # type: ignore[method-assign]
        await asyncio.gather(*(shown(served, "store_up") for _ in range(10)))
        assert await shown(served, "store_up") == 1
        assert pings == 1
        served.clock.advance(metrics.KEEP_S)
        assert await shown(served, "store_up") == 1
        assert pings == 2


async def test_a_store_that_is_late_is_shown_as_away_and_its_answer_is_not_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "STORE_S", 0.05)
    async with serving() as served:
        answered = asyncio.Event()
        pings: list[str] = []

        async def late() -> None:
            pings.append("asked")
            await answered.wait()
            pings.append("answered")

        served.node.store.ping = late  # type: ignore[method-assign]
        try:
            for _ in range(3):
                assert await shown(served, "store_up") == 0
                served.clock.advance(metrics.KEEP_S)
        finally:
            answered.set()
        await served.settle()
        assert pings == ["asked", "answered"]
        assert await shown(served, "store_up") == 1


async def test_a_store_that_is_away_is_shown_and_the_rest_with_it() -> None:
    async with serving() as served:
        assert await shown(served, "store_up") == 1
        assert await shown(served, "store_latency_ms") >= 0

        async def away() -> None:
            raise StoreUnavailable("it is away")

        served.node.store.ping = away  # type: ignore[method-assign]
        served.clock.advance(metrics.KEEP_S)
        assert await shown(served, "store_up") == 0
        assert await shown(served, "ws_connections") == 0
