"""Visibility webhook: batched requests, cached answers, and hidden users when it fails."""

from __future__ import annotations

import asyncio
from statistics import median
from typing import Any

import msgspec
import pytest

from asked import NEARBY, SECRET, asked
from e2e.test_visibility import UNKNOWN, changes, entry, states
from greendot.protocol.webhooks import BadSignature
from greendot.testing import serving


async def test_who_is_seen_is_up_to_the_app() -> None:
    async with (
        asked(("bob", "ann"), ("eve", "bob")) as app,
        serving(visibility=app.settings, webhooks=NEARBY) as served,
    ):
        ann, bob, eve = [await served.client(user) for user in ("ann", "bob", "eve")]
        assert await states(bob, "ann", "eve", "bob") == ["online", "offline", "online"]
        assert await states(eve, "ann", "bob") == ["offline", "online"]
        assert await states(ann, "bob") == ["offline"]
        assert await entry(ann, "eve") == UNKNOWN | {"user": "eve", "devices": []}
        app.verify(served.clock.now_ms() / 1000)
        with pytest.raises(BadSignature):
            app.verify(served.clock.now_ms() / 1000 + 600)
        assert {body["tenant"] for body in app.questions} == {"default"}
        assert SECRET not in repr(app.bodies)


async def test_questions_of_a_moment_go_together_and_are_asked_once() -> None:
    users = [f"u{number}" for number in range(300)]
    async with asked() as app, serving(visibility=app.settings, webhooks=NEARBY) as served:
        bobs = [await served.client(f"bob{number}") for number in range(3)]
        await asyncio.gather(*(bob.request(type="watch", users=users) for bob in bobs))
        assert len(app.pairs) == len({*app.pairs}) == 900
        assert len(app.questions) <= 3
        for bob in bobs:
            await bob.request(type="presence.get", users=users)
        assert len(app.pairs) == 900


async def test_an_answer_is_valid_for_a_while_and_a_changed_answer_is_published() -> None:
    async with asked(("bob", "ann")) as app, serving(visibility=app.settings, webhooks=NEARBY) as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        assert await states(bob, "ann") == ["online"]
        app.allowed.clear()
        assert await states(bob, "ann") == ["online"]
        frames: list[dict[str, Any]] = []
        for _ in range(2):
            frames += (await served.advance(30, alive=[ann, bob]))[1]
        assert [change["state"] for change in changes(frames)] == ["offline"]
        app.allowed.add(("bob", "ann"))
        for _ in range(2):
            frames += (await served.advance(30, alive=[ann, bob]))[1]
        assert [change["state"] for change in changes(frames)] == ["offline", "online"]


async def test_the_app_can_report_a_change_of_visibility() -> None:
    async with asked() as app, serving(visibility=app.settings, webhooks=NEARBY) as served:
        bob = await served.client("bob")
        await served.client("ann")
        assert await states(bob, "ann") == ["offline"]
        app.allowed.add(("bob", "ann"))
        await served.node.visibility_updates.put_contact(("default", "ann"), "bob", 1)
        assert [change["state"] for change in changes(await bob.quiet())] == ["online"]
        app.allowed.clear()
        await served.node.visibility_updates.remove_contact(("default", "ann"), "bob")
        assert [change["state"] for change in changes(await bob.quiet())] == ["offline"]


async def test_hidden_presence_stays_hidden_even_if_the_app_allows_it() -> None:
    async with asked(("bob", "ann")) as app, serving(visibility=app.settings, webhooks=NEARBY) as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        await ann.request(type="privacy.set", hide_from=["bob"])
        assert await states(bob, "ann") == ["offline"]


@pytest.mark.parametrize(
    "bad",
    [
        500,
        302,
        404,
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"answers": 5}',
        b'{"answers": [{"viewer": "bob"}]}',
        b'{"answers": [{"viewer": "bob", "visible": [1]}]}',
        b'{"answers": [{"viewer": "bob", "visible": ["ann"]}], "x": "' + b"x" * 100_000 + b'"}',
        b"\xff" * 100,
        b'{"answers": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    ],
    ids=lambda bad: str(bad)[:60],
)
async def test_an_app_that_answers_badly_shows_no_user_and_is_asked_again(bad: int | bytes) -> None:
    async with asked(("bob", "ann")) as app, serving(visibility=app.settings, webhooks=NEARBY) as served:
        app.override = bad
        ann, bob = await served.client("ann"), await served.client("bob")
        assert await states(bob, "ann") == ["offline"]
        app.override = 200
        _, frames = await served.advance(6, alive=[ann, bob])
        assert [change["state"] for change in changes(frames)] == ["online"]


async def test_an_app_shows_no_user_it_was_not_asked_about() -> None:
    async with asked() as app, serving(visibility=app.settings, webhooks=NEARBY) as served:
        everybody = [{"viewer": viewer, "visible": ["ann", "bob", "*"]} for viewer in ("eve", "*")]
        app.override = msgspec.json.encode({"answers": everybody})
        await served.client("ann")
        for user in ("bob", "eve"):
            client = await served.client(user)
            assert await states(client, "bob" if user == "bob" else "zoe") == ["online" if user == "bob" else "offline"]
        assert await states(await served.client("dan"), "ann") == ["offline"]


async def test_an_app_that_is_silent_costs_a_watcher_its_time_limit_and_then_nothing() -> None:
    async with (
        asked(("bob", "ann")) as app,
        serving(visibility=app.settings | {"ask_timeout_s": 0.2}, webhooks=NEARBY) as served,
    ):
        app.override = None
        await served.client("ann")
        bob = await served.client("bob")
        loop = asyncio.get_running_loop()
        took = []
        for number in range(8):
            began = loop.time()
            reply = await bob.request(type="presence.get", users=["ann", f"u{number}"])
            assert {found["state"] for found in reply["presence"]} == {"offline"}
            took.append(loop.time() - began)
        assert all(seconds >= 0.2 for seconds in took[:3])
        assert median(took[4:]) < median(took[:3]) / 2, took
        assert len(app.questions) <= 4


async def test_an_outage_hides_users_when_the_last_answer_is_too_old() -> None:
    async with asked(("bob", "ann")) as app, serving(visibility=app.settings, webhooks=NEARBY) as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        assert await states(bob, "ann") == ["online"]
        app.override = 500
        _, frames = await served.advance(30, alive=[ann, bob])
        assert changes(frames) == []
        seen = []
        for _ in range(3):
            _, frames = await served.advance(20, alive=[ann, bob])
            seen += [change["state"] for change in changes(frames)]
        assert seen == ["offline"]
        app.override = 200
        for _ in range(3):
            _, frames = await served.advance(10, alive=[ann, bob])
            seen += [change["state"] for change in changes(frames)]
        assert seen == ["offline", "online"]


async def test_tenants_ask_their_own_apps() -> None:
    async with asked(("bob", "ann")) as kind, asked() as strict:
        tenants = {"t1": {"visibility": kind.settings}, "t2": {"visibility": strict.settings}}
        async with serving(tenants=tenants, webhooks=NEARBY) as served:
            for tenant, state in (("t1", "online"), ("t2", "offline"), ("t3", "online")):
                await served.client("ann", claims={"tenant": tenant})
                bob = await served.client("bob", claims={"tenant": tenant})
                assert await states(bob, "ann") == [state]
            assert {body["tenant"] for body in kind.questions} == {"t1"}
            assert {body["tenant"] for body in strict.questions} == {"t2"}


@pytest.mark.parametrize("allowed", [(), ("10.0.0.0/8", "169.254.169.254/32")])
async def test_an_app_inside_is_not_asked_unless_its_network_is_listed(
    allowed: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    sections: dict[str, Any] = {"webhooks": {"allow_private": allowed}}
    async with asked(("bob", "ann")) as app, serving(visibility=app.settings, **sections) as served:
        await served.client("ann")
        assert await states(await served.client("bob"), "ann") == ["offline"]
        assert app.questions == []
        assert "list its network in webhooks.allow_private" in caplog.text


async def test_those_in_a_room_are_asked_about() -> None:
    async with (
        asked(("bob", "ann"), ("ann", "bob")) as app,
        serving(visibility=app.settings, webhooks=NEARBY) as served,
    ):
        await served.lobby()
        users = {user: await served.joined(user, comings=True) for user in ("ann", "bob", "eve")}
        await served.settle()
        for user, there in (("ann", ["ann", "bob"]), ("bob", ["ann", "bob"]), ("eve", ["eve"])):
            assert (await users[user].request(type="room.present", room="lobby"))["users"] == there
        users["ann"].send(type="typing.start", room="lobby")
        await users["ann"].quiet()
        await served.settle()
        assert "typing.started" in [frame["type"] for frame in await users["bob"].quiet()]
        assert await users["eve"].quiet() == []
