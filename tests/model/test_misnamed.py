"""Invalid ids in each place for an id: the whole request is refused, the error names the place, and nothing changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greendot.ids import valid_id
from greendot.testing import Closed, serving
from model.apart import CLOSED, SLOTS, WORDS, Names, Step, Story
from model.misnamed import BODIES, COMMANDS, PATHS, filled
from model.test_tenants_model import EXAMPLES, ids, names, run, trusting

LOOKALIKES = (
    "\u0430nn",
    "\uff41nn",
    "ann\u200b",
    "a\u0301nn",
    "\u202eann",
    "\U0001d41ann",
    "ann\u00ad",
    "\u0391",
    "\u0661",
)
HOSTILE = (
    ":",
    "*",
    "{}",
    "/",
    "\0",
    "a:b",
    "a*",
    "{a}",
    "a/b",
    "a\0b",
    "a b",
    "a\n",
    "",
    " ",
    "..",
    ".a",
    "-a",
    "a%00",
    "a|b",
    "a,b",
)
HUGE = ("a" * 129, "a" * 10_000, "\u00e9" * 5_000, ":" * 10_000)
bad_ids = st.one_of(
    st.sampled_from((*LOOKALIKES, *HOSTILE, *HUGE)),
    st.builds(lambda good, odd, at: good[:at] + odd + good[at:], ids, st.characters(codec="utf-8"), st.integers(0, 9)),
    st.text(st.characters(codec="utf-8"), max_size=200),
).filter(lambda text: not valid_id(text))


async def world(story: Story) -> list[Any]:
    """Return all stored records and all state of the engine."""
    served, names = story.served, story.names
    stored = await served.node.store._thread.do(lambda db: [*db.iterdump()])  # type: ignore[attr-defined]
    engine, stats, now = served.node.engine, served.node.stats(), list[Any]()
    for tenant in names.tenants:
        now.append(await engine.online(tenant, None, 100))
        for room in names.rooms:
            now += [await engine.present(tenant, room), await engine.typers(tenant, room)]
    return [stored, now, stats["topics"], stats["sessions"], stats["connections"]]


async def refused_on_the_wire(story: Story, bad: str) -> None:
    for command in COMMANDS:
        _, error = await story.command(Step(0, "", 0, 0, 0.0), **filled(command, story.names, bad))
        assert (error["type"], error["code"]) == ("error", "bad_field"), (command, error)
        assert any(f"`{field}" in error["message"] for field in command), (command, error)


async def refused_by_http(story: Story, bad: str) -> None:
    # An empty id, a dot segment or a slash changes the path, and a long path is not read.
    is_elsewhere = bad in ("", ".", "..") or "/" in bad or len(bad) > 999
    for method, path in PATHS:
        answer = await story.answer(story.keys[0], method, filled(path, story.names, bad, quoted=True))
        assert answer.status == 400 or (is_elsewhere and answer.status in (404, 405, 431)), (path, answer)
        assert not [word for word in WORDS if word.encode() in answer.body]
    for method, path, body in BODIES:
        given = filled(body, story.names, bad)
        answer = await story.answer(story.keys[0], method, filled(path, story.names, ""), given)
        assert (answer.status, answer.json()["code"]) == (400, "bad_field"), (path, body, answer)


async def refused_at_the_door(story: Story, bad: str) -> None:
    served, user = story.served, story.names.users[0]
    rooms = {story.names.rooms[CLOSED]: 0, bad: 0}
    for hello in ({"device": bad}, {"resume": {"session": bad}}, {"resume": {"rooms": rooms}}):
        stranger = await served.socket()
        stranger.send(type="hello", token=story.token(0, 0), **hello)
        assert (await stranger.receive("error"))["code"] == "bad_field"
        assert (await stranger.closed()).code == 4502
    for claims in ({"tenant": bad}, {"sub": bad}):
        stranger = await served.socket()
        stranger.send(type="hello", token=served.token(user, **claims))
        with pytest.raises(Closed) as closed:
            await stranger.receive()
        assert closed.value.code == 4500
    await served.until_gone(2 * SLOTS)


async def misnamed(names: Names, bads: list[str]) -> None:
    async with serving(limits={"enabled": False}) as served:
        story = Story(served, names, [0, 1])
        await story.begin()
        before = await world(story)
        for bad in bads:
            await refused_on_the_wire(story, bad)
            await refused_by_http(story, bad)
            await refused_at_the_door(story, bad)
            assert await world(story) == before, bad
        for client in story.clients.values():
            assert await client.quiet() == []
            assert (await client.request(type="room.list"))["rooms"]


@pytest.mark.timeout(600)
@given(names=names, bads=st.lists(bad_ids, min_size=3, max_size=3))
@settings(trusting, max_examples=EXAMPLES)
def test_what_is_no_id_is_refused_whole_wherever_it_stands_and_changes_nothing(names: Names, bads: list[str]) -> None:
    run(misnamed(names, bads))
