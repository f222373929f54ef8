"""Users and rooms that were held during a restore are read again, also after a failed read."""

from __future__ import annotations

from typing import Any

import pytest

from greendot.engine.messages import Entered, Topic
from greendot.errors import EngineUnavailable
from greendot.presence.model import Change, VisibleState
from greendot.testing import Served, serving

HOLD_S = 7.0


def fail_once(monkeypatch: pytest.MonkeyPatch, served: Served, method: str) -> list[str]:
    """Make one call of the engine fail, as during a move of cluster keys. Return a list that records the calls."""
    original, calls = getattr(served.node.engine, method), list[str]()

    async def failing(*arguments: Any) -> Any:
        calls.append(method)
        if len(calls) == 1:
            raise EngineUnavailable("the keys are moving between servers of the cluster: try again")
        return await original(*arguments)

    monkeypatch.setattr(served.node.engine, method, failing)
    return calls


async def test_a_user_whose_read_fails_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as served:
        alice, bob = await served.client("alice"), await served.client("bob")
        await bob.request(type="watch", users=["alice"])
        topic, restored = Topic("watch", "default", "alice"), VisibleState("idle", version=1)
        served.node.watching.changed(topic, Change(restored, restored, None, [], True, True, restored=True))
        await alice.request(type="status.set", status="busy")  # not delivered: the user is being restored
        calls = fail_once(monkeypatch, served, "read")
        await served.advance(HOLD_S, [alice])
        assert calls, "the engine was not read"
        (heard,) = await served.advance(HOLD_S, [bob])
        assert [frame["data"]["state"] for frame in heard if frame["type"] == "presence.changed"] == ["busy"]


async def test_a_room_whose_read_fails_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.joined("alice"), await served.joined("bob", comings=True)
        served.node.rooms.received(Topic("room", "default", "lobby"), Entered("alice", restored=True))
        await alice.request(type="room.leave", room="lobby")  # not delivered: the room is being restored
        calls = fail_once(monkeypatch, served, "present_page")
        await served.advance(HOLD_S, [alice])
        assert calls, "the engine was not read"
        (heard,) = await served.advance(HOLD_S, [bob])
        assert [frame["data"]["user"] for frame in heard if frame["type"] == "room.left"] == ["alice"]
