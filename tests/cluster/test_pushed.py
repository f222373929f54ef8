"""Push while nodes with users on them or push workers die."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cluster.nodes import GRACE_S, LEASE_S, node, redis_url, serving
from e2e.processes import Process, running, start, until
from e2e.pushed import push_settings
from fake_providers import Asked, PlayedFcm, playing
from greendot.app.push import make_senders
from greendot.clock import SystemClock
from greendot.config import load
from greendot.push.policy_model import PushPolicy, RecipientState
from greendot.push.worker import LEASE_MS, PushWorker, TenantPushConfig, WorkerPace
from greendot.store.sqlite import SqliteStore
from greendot.testing.clock import ShiftedClock
from redis_servers import RedisProcess
from redis_servers.tls import certificates

HOLD_S = 2.0
SLACK_S = 6.0  # a poll, a check, and time for a busy machine


@asynccontextmanager
async def a_provider(folder: Path) -> AsyncIterator[tuple[PlayedFcm, dict[str, str]]]:
    """Run a fake FCM and return it with the settings of servers that push to it."""
    made = certificates(folder)
    async with playing(PlayedFcm(), made) as fcm:
        settings = push_settings(fcm, made, folder) | {"active_hold_s": HOLD_S, "idle_hold_s": HOLD_S}
        texts = {key: ",".join(value) if isinstance(value, tuple) else str(value) for key, value in settings.items()}
        yield fcm, {f"GREENDOT_PUSH_{key}".upper(): text for key, text in texts.items()}


async def device(server: Process, user: str) -> None:
    body = {"provider": "fcm", "token": f"token-{user}"}
    assert (await server.ask("PUT", f"/v1/users/{user}/devices/phone", body)).status == 201


async def notify(server: Process, user: str, **more: object) -> str:
    body = {"user": user, "kind": "ping", "body": {"title": "Hi"}} | more
    answer = await server.ask("POST", "/v1/notifications", body)
    assert answer.status == 201, answer
    made: str = answer.json()["id"]
    return f"{made}.phone"


@pytest.mark.timeout(120)
async def test_a_ghost_delays_a_push_and_never_suppresses_it(redis: RedisProcess, tmp_path: Path) -> None:
    """The node is killed while the user is active on it in the same room, which is the strongest reason not to push."""
    url = redis_url(redis.port)
    async with (
        a_provider(tmp_path) as (fcm, environment),
        serving(tmp_path, url, url, **environment) as (first, second),
    ):
        assert (await second.ask("PUT", "/v1/rooms/hall", {"open": True})).status in (200, 201)
        ann = await first.client("ann")
        await ann.request(type="room.join", room="hall")
        await device(second, "ann")
        await first.kill()
        keys = {await notify(second, "ann"), await notify(second, "ann", room="hall")}
        assert not fcm.taken, "pushed while the user may still be online"
        await until(lambda: {*fcm.keys} == keys, LEASE_S + GRACE_S + HOLD_S + SLACK_S)
        assert {*fcm.keys.values()} == {1}
        await ann.end()


async def test_all_users_receive_pushes_while_redis_is_away(redis: RedisProcess, tmp_path: Path) -> None:
    async with (
        a_provider(tmp_path) as (fcm, environment),
        node(tmp_path, redis_url(redis.port), **environment | {"GREENDOT_PUSH_ACTIVE_HOLD_S": "3600"}) as server,
    ):
        ann = await server.client("ann")
        await device(server, "ann")
        first = await notify(server, "ann")
        await until_held(tmp_path, first)
        redis.kill()
        second = await notify(server, "ann")
        await until(lambda: second in fcm.keys, 20)
        assert first not in fcm.keys, "pushed although the user was online at the decision"
        await ann.end()


async def test_a_worker_pushes_when_busy_ends_on_a_server(redis: RedisProcess, tmp_path: Path) -> None:
    url = redis_url(redis.port)
    async with (
        a_provider(tmp_path) as (fcm, environment),
        node(tmp_path, url, **environment | {"GREENDOT_PUSH_IN_SERVER": "false"}) as server,
    ):
        ann = await server.client("ann")
        await ann.request(type="status.set", status="busy")
        await device(server, "ann")
        held = await notify(server, "ann")
        worker = await start(tmp_path, "worker", "--engine", url, **environment)
        try:
            await until_held(tmp_path, held, "busy")
            await ann.request(type="status.set", status="auto")
            # A worker that only waits checks a busy user again after a minute.
            await until(lambda: held in fcm.keys, 30)
        finally:
            worker.kill()
            await worker.communicate()
        await ann.end()


async def until_held(folder: Path, key: str, reason: str = "active") -> None:
    """Wait until the push was decided and is held."""
    store = SqliteStore(str(folder / "greendot.db"))
    await store.start()
    try:
        async with asyncio.timeout(10):
            while (await store.push_of("default", key.removesuffix(".phone")))[0].reason != reason:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        await store.close()


# --- death of the sender ---


def _as_it_is_asked(kill: Callable[[], None], asked: Asked) -> str:
    kill()
    return "hang"


def _as_it_answers(kill: Callable[[], None], asked: Asked) -> None:
    """Kill the sender after FCM has accepted the push and before the response is read."""
    kill()


@pytest.mark.parametrize("dies", [_as_it_is_asked, _as_it_answers], ids=lambda dies: dies.__name__)
@pytest.mark.parametrize("at", [0, 1, 7])  # 0: before the first push, at the token request
async def test_who_is_killed_while_sending_loses_nothing_and_sends_one_too_many_at_most(
    dies: Callable[[Callable[[], None], Asked], str | None], at: int, tmp_path: Path
) -> None:
    async with a_provider(tmp_path) as (fcm, environment):
        async with running(tmp_path, "--host", "127.0.0.1", **environment) as server:
            asked = 0

            def behave(request: Asked) -> str | None:
                nonlocal asked
                asked += request.path != "/token"
                return dies(lambda: os.kill(server.pid, signal.SIGKILL), request) if asked == at else None

            for number in range(10):
                await device(server, f"u{number}")
            fcm.behave = behave
            if at == 0:
                fcm.is_asked = lambda: os.kill(server.pid, signal.SIGKILL)
            keys = set()
            for number in range(10):
                try:
                    keys.add(await notify(server, f"u{number}"))
                except (OSError, AssertionError, IndexError):
                    break  # the server is dead and did not acknowledge this notification
            await server.ended()
        fcm.behave, fcm.is_asked = lambda request: None, lambda: None
        await work_on(tmp_path, environment)
        assert keys <= {*fcm.keys}, "a push was lost"
        assert max(fcm.keys.values()) <= 2, "a push was sent more than twice"


async def work_on(folder: Path, environment: dict[str, str]) -> None:
    """Run another worker after the lease of the first has ended."""
    clock, store = ShiftedClock(), SqliteStore(str(folder / "greendot.db"))
    clock.advance(LEASE_MS / 1000 + 1)
    settings = load(None, environment, {})
    senders = make_senders(settings, "all", settings.push, SystemClock())
    house = TenantPushConfig(senders, lambda kind: PushPolicy(), lambda kind: False)

    async def look(rooms: object) -> dict[tuple[str, str], RecipientState]:
        return {}

    await store.start()
    try:
        await PushWorker(store, lambda tenant: house, look, clock, WorkerPace()).once()
    finally:
        await store.close()
        for sender in senders.values():
            await sender.close()
        await asyncio.sleep(0)


async def test_a_worker_pushes_for_servers_that_do_not(redis: RedisProcess, tmp_path: Path) -> None:
    url = redis_url(redis.port)
    async with (
        a_provider(tmp_path) as (fcm, environment),
        node(tmp_path, url, **environment | {"GREENDOT_PUSH_IN_SERVER": "false"}) as server,
    ):
        ann = await server.client("ann")
        for user in ("ann", "bob"):
            await device(server, user)
        held, made = await notify(server, "ann"), await notify(server, "bob")
        worker = await start(tmp_path, "worker", "--engine", url, **environment)
        try:
            await until(lambda: made in fcm.keys, 20)
            await until(lambda: held in fcm.keys, 20)
            worker.send_signal(signal.SIGTERM)
            out, err = await asyncio.wait_for(worker.communicate(), 15)
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.communicate()
        assert (worker.returncode, b"worker is ready." in out, b"Traceback" in err) == (0, True, False), err
        assert fcm.keys == {made: 1, held: 1}
        await ann.end()
