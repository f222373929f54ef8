"""The app chooses for a user how changes reach the watchers: real sockets, virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from e2e.processes import Answer, ask
from greendot.presence import modes
from greendot.presence.mode_model import PresenceMode
from greendot.testing import Served, WireClient, serving
from greendot.testing.hold import hold
from greendot.testing.server import API_KEY

PATH = "/v1/users/star/presence/mode"


async def http(served: Served, method: str, body: Any = None, path: str = PATH) -> Answer:
    return await ask(served.port, method, path, body, Authorization=f"Bearer {API_KEY}")


async def choose(served: Served, mode: PresenceMode) -> None:
    answer = await http(served, "PUT", {"mode": mode})
    assert (answer.status, answer.json()) == (200, {"user": "star", "mode": mode})


async def watch(client: WireClient) -> dict[str, Any]:
    (entry,) = (await client.request(type="watch", users=["star"]))["presence"]
    return dict(entry)


async def told(served: Served, client: WireClient, seconds: float = 1.0) -> list[tuple[str, str]]:
    """Return state and mode of the changes that the client gets within some seconds."""
    (frames,) = await served.advance(seconds, alive=[client])
    return [(frame["data"]["state"], frame["data"]["mode"]) for frame in frames if frame["type"] == "presence.changed"]


async def test_watchers_of_a_polled_user_get_the_mode_and_then_no_changes_until_it_ends() -> None:
    async with serving() as served:
        star, fan = await served.client("star"), await served.client("fan")
        assert (await watch(fan))["mode"] == "live"
        await choose(served, "poll")
        assert (await http(served, "GET")).json() == {"user": "star", "mode": "poll"}
        assert await told(served, fan) == [("online", "poll")]
        await star.request(type="status.set", status="busy")
        assert await told(served, fan, 60) == []
        (entry,) = (await fan.request(type="presence.get", users=["star"]))["presence"]
        assert (entry["state"], entry["mode"], entry["recently_active"]) == ("busy", "poll", True)
        late = await served.client("late")
        assert (await watch(late))["mode"] == "poll"
        assert (await http(served, "DELETE")).status == 204
        assert (await http(served, "GET")).json()["mode"] == "auto"
        assert await told(served, fan) == [("busy", "live")]
        await star.request(type="status.set", status="auto")
        assert await told(served, fan) == [("online", "live")]


async def test_own_devices_of_a_polled_user_get_all_changes() -> None:
    async with serving() as served:
        star, laptop = await served.client("star"), await served.client("star", device="laptop")
        await watch(laptop)
        await choose(served, "poll")
        await star.request(type="status.set", status="busy")
        assert await told(served, laptop) == [("busy", "live")]


async def test_the_changes_of_a_live_user_are_delivered_to_more_watchers_than_the_threshold() -> None:
    async with serving(presence={"celebrity_watchers": 3, "celebrity_polling": 5}) as served:
        star = await served.client("star")
        fans = [await served.client(f"fan{number}") for number in range(5)]
        await choose(served, "live")
        fans += [await served.client("last")]
        assert [(await watch(fan))["mode"] for fan in fans] == ["live"] * 6
        await star.request(type="status.set", status="busy")
        seen = await served.advance(31, alive=fans)
        assert [[frame["data"]["state"] for frame in frames] for frames in seen] == [["busy"]] * 6
        await choose(served, "auto")
        seen = await served.advance(31, alive=fans)
        assert [[frame["data"]["mode"] for frame in frames] for frames in seen] == [["poll"]] * 6


async def test_the_mode_of_the_app_comes_before_the_setting() -> None:
    async with serving(presence={"polled": ["default/star"]}) as served:
        await served.client("star")
        fan = await served.client("fan")
        assert (await watch(fan))["mode"] == "poll"
        await choose(served, "live")
        assert await told(served, fan) == [("online", "live")]
        await choose(served, "auto")
        assert await told(served, fan) == [("online", "poll")]


async def test_a_mode_is_in_the_store_and_applies_at_the_first_use_of_a_tenant() -> None:
    async with serving() as served:
        await served.node.store.put_presence_mode("default", "star", "poll", most=1)
        await served.node.store.put_presence_mode("other", "fan", "poll", most=1)
        fan = await served.client("fan")
        assert (await watch(fan))["mode"] == "poll"
        (entry,) = (await served_get(served, "star"))["presence"]
        assert entry["mode"] == "poll"
        (entry,) = (await served_get(served, "fan"))["presence"]
        assert entry["mode"] == "live"


async def served_get(served: Served, user: str) -> dict[str, Any]:
    reader = await served.client("reader")
    return await reader.request(type="presence.get", users=[user])


async def test_a_change_whose_message_was_lost_is_found_within_half_a_minute() -> None:
    async with serving() as served:
        await served.client("star")
        fan = await served.client("fan")
        await watch(fan)
        await served.node.store.put_presence_mode("default", "star", "poll", most=1)
        assert await told(served, fan, 31) == [("online", "poll")]
        await served.node.store.put_presence_mode("default", "star", "auto", most=1)
        assert await told(served, fan, 31) == [("online", "live")]


@pytest.mark.parametrize("at", ["before", "after"])
async def test_a_mode_that_changes_while_modes_are_read_is_in_force_when_it_is_answered(at: Any) -> None:
    async with serving() as served:
        fan = await served.client("fan")
        async with hold(served.node.store, "presence_modes_in", at=at) as held:
            watching = asyncio.create_task(watch(fan))
            await held.reached()
            chosen = asyncio.create_task(choose(served, "poll"))
            while not await served.node.store.presence_modes([("default", "star")]):
                pass
            held.release()
            await chosen
        await watching
        (entry,) = (await fan.request(type="presence.get", users=["star"]))["presence"]
        assert entry["mode"] == "poll"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"mode": "often"}, "mode"),
        ({}, "mode"),
        ({"mode": None}, "mode"),
        ({"mode": ["poll"]}, "mode"),
    ],
)
async def test_bad_modes_are_refused_with_the_field(body: Any, names: str) -> None:
    async with serving() as served:
        answer = await http(served, "PUT", body)
        assert (answer.status, answer.json()["code"]) == (400, "bad_field")
        assert names in answer.json()["detail"]
        assert (
            await http(served, "PUT", {"mode": "poll"}, "/v1/users/b b/presence/mode".replace(" ", "%20"))
        ).status == 400


async def test_a_tenant_has_a_limited_number_of_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "MOST_MODES", 1)
    async with serving() as served:
        await choose(served, "poll")
        answer = await http(served, "PUT", {"mode": "poll"}, "/v1/users/other/presence/mode")
        assert answer.json()["code"] == "too_many"
        await choose(served, "live")


async def test_an_erased_user_has_no_mode_on_a_running_server() -> None:
    async with serving() as served:
        await served.client("star")
        fan = await served.client("fan")
        await watch(fan)
        await choose(served, "poll")
        await told(served, fan)
        step = await served.node.store.erase_user("default", "star", None, limit=100)
        while step.next is not None:
            step = await served.node.store.erase_user("default", "star", step.next, limit=100)
        assert await told(served, fan, 31) == [("online", "live")]
        assert (await http(served, "GET")).json()["mode"] == "auto"
