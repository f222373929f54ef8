"""Output of `greendot inspect`."""

from __future__ import annotations

from typing import Any

from greendot.cli import inspect_view

NOW = 1_800_000_000_000


def a_node(**more: Any) -> dict[str, Any]:
    return {
        "node": "mjZo",
        "state": "live",
        "level": "normal",
        "answered": False,
        "renewed_ago_ms": 4_000,
        "lease_ends_in_ms": 11_000,
        "sessions_end_in_ms": None,
    } | more


def test_an_unresponsive_node_and_a_dead_node_are_shown_differently() -> None:
    assert inspect_view.node(a_node(), NOW) == [
        "Node mjZo is live but does not answer. Its lease ends in 11 s unless renewed."
    ]
    assert inspect_view.node(a_node(state="dead", sessions_end_in_ms=25_000), NOW) == [
        "Node mjZo is dead. Its lease was renewed 4 s ago; its sessions end in 25 s."
    ]
    assert inspect_view.node(a_node(state="dead", sessions_end_in_ms=0), NOW)[0].endswith("its sessions have ended.")


def test_nodes_that_did_not_answer_for_a_topic_are_named() -> None:
    here = {"node": "mjZo", "listeners": 1, "barred": 2, "told": "slices", "frames": 3, "writes": 4, "stale": True}
    topic = {"kind": "watch", "tenant": "acme", "name": "ann", "listeners": 1, "silent": ["oXVI"]}
    lines = inspect_view.topic(topic | {"nodes": [here | {"unheard_in_ms": None}]}, NOW)
    assert lines[0] == "watch:ann (tenant acme) has 1 subscriber."
    assert lines[2].splitlines()[1].split() == ["mjZo", "1", "2", "slices", "3", "4", "stale", "–"]
    assert lines[-1] == "Nodes that did not answer: oXVI."


def test_the_number_of_members_that_are_not_listed_is_shown() -> None:
    room = {"room": "den", "tenant": "acme", "open": False, "bus": "full", "head": 3, "member_count": 201}
    there = {"present": [], "present_count": 0, "listeners": 0, "nodes": [], "typing_ends_in_ms": {}}
    lines = inspect_view.room(room | there | {"members": [{"user": "ann", "role": "admin"}]}, NOW)
    assert "  typing     none" in lines
    assert lines[-1] == "… and 200 more members: greendot rooms den"
