"""Webhooks of several nodes: one node sends each event, also when another dies."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cluster.nodes import LAPSE_S, Clients, redis_url, serving
from e2e.processes import until
from receiver import SECRET, Receiver, receiving
from redis_servers import RedisProcess


def hooked(app: Receiver) -> dict[str, str]:
    return {
        "GREENDOT_WEBHOOKS_URL": app.url,
        "GREENDOT_WEBHOOKS_SECRET": SECRET,
        "GREENDOT_WEBHOOKS_ALLOW_PRIVATE": "127.0.0.0/8",
        "GREENDOT_WEBHOOKS_BATCH_WAIT_MS": "20",
    }


def counted(events: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((event["type"], event["data"].get("user") or event["data"].get("room")) for event in events)


@pytest.mark.timeout(120)
async def test_each_event_is_reported_by_one_node_even_when_a_node_is_killed(
    tmp_path: Path, redis: RedisProcess
) -> None:
    users = [f"u{number:02}" for number in range(30)]
    staying, gone = users[:10], users[10:]
    async with (
        receiving() as app,
        serving(tmp_path, *[redis_url(redis.port)] * 2, **hooked(app)) as (dying, other),
        Clients() as clients,
    ):
        for room in ("lobby", "den"):
            await other.ask("PUT", f"/v1/rooms/{room}", {"open": True})
        here = await clients.crowd(dying, users)
        there = await clients.crowd(other, staying, device="phone")
        for client in (*here.values(), *there.values()):
            await client.request(type="room.join", room="lobby")
        await there["u00"].request(type="room.join", room="den")
        await here["u00"].request(type="room.send", room="lobby", body="here")
        await there["u00"].request(type="room.send", room="lobby", body="there")
        await until(lambda: len(app.of("user.online")) >= 30 and len(app.of("room.message")) >= 2)
        await until(lambda: len(app.of("room.occupied")) >= 2)
        assert counted(app.of("user.online")) == {("user.online", user): 1 for user in users}
        assert counted(app.of("room.occupied")) == {("room.occupied", "lobby"): 1, ("room.occupied", "den"): 1}

        watcher = (await clients.watchers([other], *gone))[0]  # its reads also end sessions, in addition to the sweep
        await dying.kill()
        await until(lambda: len(app.of("user.offline")) >= 20, LAPSE_S + 5)
        await there["u01"].request(type="room.send", room="lobby", body="after")
        for client in there.values():
            client.send(type="bye")
        watcher.send(type="bye")
        # The killed node may have held the queue. Then its lease must end first.
        await until(lambda: len(app.of("room.vacated")) >= 2 and len(app.of("room.message")) >= 3, 30)
        await until(lambda: len(app.of("user.offline")) >= 31)
        await asyncio.sleep(0.5)  # time for unexpected events
        assert counted(app.of("user.offline")) == {("user.offline", user): 1 for user in (*users, "watcher0")}
        assert counted(app.of("room.vacated")) == {("room.vacated", "lobby"): 1, ("room.vacated", "den"): 1}
        assert {event["data"]["body"] for event in app.of("room.message")} == {"here", "there", "after"}
        app.verify()
