"""Tenants with equal names on one server: each receives the same events and replies as alone.

`TENANT_EXAMPLES` sets the number of sequences (`make model`).
"""

from __future__ import annotations

import asyncio
import os
import string
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from e2e.processes import until
from greendot.testing import serving
from model.apart import OPEN, SLOTS, VERBS, WORDS, Names, Step, Story
from receiver import LOOPBACK, SECRET, Receiver, receiving

OFTEN = ["join", "send", "watch", "query", "notify"] * 4 + ["type", "history", "present", "stats"] * 2
EXAMPLES = int(os.environ.get("TENANT_EXAMPLES", "20"))
POLICIES = ("tenant", "tenant", "shared_rooms", "contacts", "recent_contacts")
# Joined by a character that ids may contain, some of these are equal: `a` and `b.c`, `a.b` and `c`.
TENANTS = ("a", "a.b", "a-b", "A", "a@b", "a=b", "a+b", "default", "_", "0", "A" * 128)
ODD = (
    "c",
    "b.c",
    "b-c",
    "b@c",
    "b=c",
    "b+c",
    "C",
    "a",
    "_",
    "0",
    "a.b",
    "A" * 128,
    "a.b@c=d+e-f",
    "default",
    "nobody_",
)
FIRST = string.ascii_letters + string.digits + "_"
made_up = st.builds(str.__add__, st.sampled_from(FIRST), st.text(FIRST + ".@=+-", max_size=9))
ids = st.one_of(st.sampled_from(ODD), made_up)


def several(count: int) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(ids, min_size=count, max_size=count, unique=True).map(tuple)


tenants = st.lists(st.sampled_from(TENANTS), min_size=2, max_size=3, unique=True).map(tuple)
names = st.builds(Names, tenants, several(2), several(3), ids, ids)
steps = st.builds(
    Step,
    st.sampled_from([0, 1, 2]),
    st.sampled_from([*VERBS, *OFTEN]),
    st.integers(0, SLOTS - 1),
    st.integers(0, 11),
    st.sampled_from([0.1, 0.1, 0.1, 1.0, 6.0, 40.0]),
)
stories = st.lists(steps, min_size=20, max_size=40)
trusting = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def run(story: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(story)


def others(tenant: int) -> list[str]:
    return [word for at, word in enumerate(WORDS) if at != tenant]


async def told(policy: str, names: Names, story: list[Step], tenants: list[int]) -> dict[int, list[str]]:
    async with serving(visibility={"policy": policy}) as served:
        here = Story(served, names, tenants)
        await here.begin()
        for step in story:
            await here.tell(step)
        return here.written


@pytest.mark.timeout(600)
@given(policy=st.sampled_from(POLICIES), names=names, story=stories)
@settings(trusting, max_examples=EXAMPLES)
def test_a_tenant_receives_the_same_alone_and_beside_others(policy: str, names: Names, story: list[Step]) -> None:
    here = [*range(len(names.tenants))]
    together = run(told(policy, names, story, here))
    for tenant in here:
        (alone,) = run(told(policy, names, story, [tenant])).values()
        for number, (one, other) in enumerate(zip(together[tenant], alone, strict=True)):
            assert one == other, (tenant, story[number - 1] if number else "before the first step")
        assert not [word for word in others(tenant) if word in "".join(together[tenant])]


# --- webhooks ---


async def hooked(names: Names, story: list[Step], tenants: list[int]) -> dict[int, Receiver]:
    """Run the steps and return the webhook receiver of each tenant."""
    async with AsyncExitStack() as stack:
        apps = {tenant: await stack.enter_async_context(receiving()) for tenant in tenants}
        sections = {
            names.tenants[tenant]: {"webhooks": {"url": app.url, "secret": SECRET}} for tenant, app in apps.items()
        }
        async with serving(webhooks=LOOPBACK, tenants=sections) as served:
            here = Story(served, names, tenants)
            await here.begin()
            for step in story:
                await here.tell(step)
            for tenant in tenants:
                # Events of records arrive in order: this is the last.
                last = {"user": names.users[0], "body": "the end"}
                path = f"/v1/rooms/{names.rooms[OPEN]}/messages"
                assert (await here.answer(here.keys[tenant], "POST", path, last)).status == 201
            await until(lambda: all("the end" in str(app.of("room.message")) for app in apps.values()))
            return apps


def records(app: Receiver) -> list[Any]:
    """Return the webhook events of records, without random values of the server."""
    found = [(event["type"], event["data"]) for event in app.events if event["type"][:4] in ("room", "noti")]
    kept = ("user", "room", "seq", "kind", "state", "body", "op", "ref")
    told = [(type, {name: data.get(name) for name in kept}) for type, data in found]
    return sorted((of for of in told if of[1]["seq"] or of[1]["state"]), key=msgspec.json.encode)


@pytest.mark.timeout(600)
@given(names=names, story=stories)
@settings(trusting, max_examples=max(1, EXAMPLES // 10))
def test_the_app_of_a_tenant_receives_the_same_events_alone_and_beside_other_tenants(
    names: Names, story: list[Step]
) -> None:
    here = [*range(len(names.tenants))]
    together = run(hooked(names, story, here))
    for tenant in here:
        (alone,) = run(hooked(names, story, [tenant])).values()
        assert records(together[tenant]) == records(alone)
        said = b"".join(request.body for request in together[tenant].requests).decode()
        assert not [word for word in others(tenant) if word in said]
        assert {event["tenant"] for event in together[tenant].events} == {names.tenants[tenant]}
