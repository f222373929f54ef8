"""Nodes that must confirm a change, also when the engine has lost its nodes or sessions."""

from __future__ import annotations

import pytest

from greendot.engine.memory import MemoryEngine
from greendot.engine.results import EngineSession, NodeInfo
from greendot.node.needed_nodes import live_nodes, nodes_of_user
from greendot.presence.model import SessionEpoch
from unit.node_parts import NodeParts, in_virtual_time

OTHER, THIRD = "OTHR", "THRD"


async def ann_on(parts: NodeParts, node: str) -> None:
    ref = SessionEpoch(f"{node}-ann", node, 1)
    await MemoryEngine.touch(parts.engine, "default", "ann", ref, "tablet", False, None)


def forget_nodes(parts: NodeParts, monkeypatch: pytest.MonkeyPatch, *remaining: NodeInfo) -> None:
    """Let the engine return only these nodes. The nodes that were known as live are still known."""

    async def nodes() -> list[NodeInfo]:
        return [*remaining]

    monkeypatch.setattr(parts.engine, "nodes", nodes)


@in_virtual_time
async def test_live_nodes_include_those_whose_entries_were_lost(
    parts: NodeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.engine.other_node(OTHER)
    assert await live_nodes(parts.engine) == {parts.incarnation, OTHER}
    forget_nodes(parts, monkeypatch)
    assert await live_nodes(parts.engine) == {parts.incarnation, OTHER}


@in_virtual_time
async def test_a_node_that_has_died_since_the_last_look_is_not_live_and_a_new_one_is(
    parts: NodeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.engine.other_node(OTHER)
    forget_nodes(parts, monkeypatch, NodeInfo(OTHER, "dead", 1, 2), NodeInfo(THIRD, "live", 1, None))
    assert await live_nodes(parts.engine) == {parts.incarnation, THIRD}


@in_virtual_time
async def test_only_nodes_with_sessions_are_nodes_of_the_user(parts: NodeParts) -> None:
    parts.engine.other_node(OTHER)
    parts.engine.other_node(THIRD)
    await ann_on(parts, OTHER)
    assert await nodes_of_user(parts.engine, "default", "ann") == {OTHER}
    assert await nodes_of_user(parts.engine, "default", "bob") == set()


@in_virtual_time
async def test_after_a_loss_any_live_node_may_have_sessions_of_the_user(parts: NodeParts) -> None:
    parts.engine.other_node(OTHER)
    await ann_on(parts, OTHER)
    parts.engine.lose()
    parts.engine.restoring = True
    assert await nodes_of_user(parts.engine, "default", "ann") == {parts.incarnation, OTHER}


@pytest.mark.parametrize("before", [False, True])
@in_virtual_time
async def test_a_loss_that_begins_or_ends_during_the_read_counts(
    parts: NodeParts, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    parts.engine.other_node(OTHER)
    parts.engine.restoring = before

    async def sessions(tenant: str, user: str) -> list[EngineSession]:
        parts.engine.restoring = not before
        return []

    monkeypatch.setattr(parts.engine, "sessions", sessions)
    assert await nodes_of_user(parts.engine, "default", "ann") == {parts.incarnation, OTHER}
