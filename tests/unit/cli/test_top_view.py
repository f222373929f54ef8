"""Output of `greendot top` in terminals of different sizes."""

from __future__ import annotations

from typing import Any

import pytest

from greendot.cli._terminal import Size
from greendot.cli.top_view import SORTS, Shown, flow, laid_out, many, rate

NOW = 1_800_000_000_000
KEYS = "q quit  p pause  s sort"
WELCOME = {"version": "1.0", "tenant": None, "every": True}


def node(name: str, connections: int = 10, **more: Any) -> dict[str, Any]:
    return {
        "node": name,
        "state": "live",
        "level": "normal",
        "renewed_ago_ms": 2_000,
        "ends_at": None,
        "answered": True,
        "started_at": NOW - 3_600_000,
        "gauges": {"ws_connections": connections, "ws_users_online": connections, "realtime_loop_lag_ms": 3},
        "rates": {
            "realtime_socket_send_total": 1.5,
            "realtime_commands_total": 20,
            "realtime_pubsub_received_total": 4,
        },
    } | more


def sample(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "sums": {"ws_connections": 1204, "ws_users_online": 1050, "realtime_hellos_waiting": 3},
        "worst": {
            "realtime_overload_level": 1,
            "realtime_loop_lag_ms": 12,
            "redis_command_latency_us": 210,
            "push_queue_waiting": 7,
            "push_queue_oldest_s": 61,
            "webhooks_queue_waiting": 0,
            "webhooks_queue_oldest_s": 0,
        },
        "rates": {"realtime_socket_send_total": 120_000.0, "realtime_dropped_ephemeral_total": 0.2},
        "closes": {"4001": 0.5, "1000": 0},
        "nodes": [*nodes],
    } | more


def shown(*nodes: dict[str, Any], **more: Any) -> Shown:
    return Shown("http://here", WELCOME, sample(*(nodes or (node("a"),)), **more), NOW)


def text(shown: Shown, size: Size | None = None) -> str:
    return "\n".join(line.text for line in laid_out(shown, size, KEYS if size else ""))


HOT = [{"kind": "room", "tenant": "acme", "name": f"room{n}", "listeners": 100, "per_s": 1000.0 - n} for n in range(20)]
SLOW = [
    {"tenant": "acme", "user": f"ann{n}", "device": "tv", "node": "a", "session": f"a-{n}", "waiting": 90_000}
    for n in range(20)
]


def test_everything_is_there_when_there_is_room() -> None:
    whole = text(shown(node("a"), node("b"), hot=HOT, slow=SLOW))
    for part in (
        "2 nodes  1,204 connections  1,050 users",
        "load shedding  loop lag 12 ms  Redis 210 µs",
        "deliveries 120k  dropped 0.2",
        "hellos 3  push 7 (oldest 1 min)  webhooks 0",
        "closed, per second:  4001 0.5",
        "room acme/room19",
        "acme/ann19",
        "88 KiB",
    ):
        assert part in whole
    assert "1000" not in whole.partition("NODE")[0]


@pytest.mark.parametrize("columns", [20, 33, 40, 80, 81, 200])
@pytest.mark.parametrize("lines", [4, 5, 9, 12, 24, 90])
def test_a_screen_is_filled_exactly_and_nothing_stands_out(columns: int, lines: int) -> None:
    nodes = [node(f"node{number}", number) for number in range(30)]
    found = laid_out(shown(*nodes, hot=HOT, slow=SLOW), Size(columns, lines), KEYS)
    assert len(found) == lines
    assert max(len(line.text) for line in found) <= columns
    assert found[-1].text == f"{KEYS}: connections"[:columns]
    assert found[0].text.startswith("greendot 1.0")


def test_in_a_small_terminal_there_is_something_of_nodes_and_of_topics() -> None:
    lines = text(shown(node("a"), node("b"), hot=HOT, slow=SLOW), Size(40, 12)).splitlines()
    assert any(line.startswith("NODE  LOAD") for line in lines)
    assert any(line.startswith("HOT TOPIC") for line in lines)


@pytest.mark.parametrize("size", [Size(19, 24), Size(80, 3), Size(1, 1), Size(0, 0)])
def test_a_terminal_that_is_too_small_shows_as_much_of_its_message_as_fits(size: Size) -> None:
    (line,) = laid_out(shown(), size)
    assert line.text == "too small"[: size.columns]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("connections", "cab"), ("deliveries", "bac"), ("lag", "acb"), ("name", "abc")],
)
def test_nodes_are_sorted_by_what_is_asked(sort: str, expected: str) -> None:
    def one(name: str, connections: int, sent: int, lag: int) -> dict[str, Any]:
        gauges = {"ws_connections": connections, "realtime_loop_lag_ms": lag}
        return node(name, gauges=gauges, rates={"realtime_socket_send_total": sent})

    looked = shown(one("a", 5, 5, 9), one("b", 1, 9, 1), one("c", 9, 1, 5))
    looked.sort = sort
    rows = text(looked).partition("NODE")[2].splitlines()[1:]
    assert "".join(row[0] for row in rows) == expected
    assert sort in SORTS


def test_dead_silent_and_refusing_nodes_are_shown_differently() -> None:
    dead = {"node": "d", "state": "dead", "level": "normal", "renewed_ago_ms": None, "ends_at": NOW, "answered": False}
    found = laid_out(shown(node("r", level="refusing"), node("s", answered=False), dead), None)
    rows = {line.text[:1]: (line.text.split()[1], line.style) for line in found if line.text[:1] in "rsd"}
    assert rows == {"r": ("refusing", "alarm"), "s": ("silent", "warn"), "d": ("dead", "dim")}


def test_what_went_wrong_takes_the_place_of_the_keys() -> None:
    looked = shown()
    looked.trouble = "connection to http://here lost. Waiting, 3 s"
    last = laid_out(looked, Size(80, 24), KEYS)[-1]
    assert (last.text, last.style) == (looked.trouble, "alarm")


def test_a_tenants_key_sees_its_tenant_and_no_nodes() -> None:
    data = {
        "sums": {"tenant_connections": 12, "tenant_users_online": 10},
        "worst": {},
        "rates": {"tenant_sends_total": 3.0, "tenant_refused_total": 0},
        "closes": {},
        "hot": HOT[:1],
        "slow": [],
    }
    whole = text(Shown("http://here", {"version": "1.0", "tenant": "acme", "every": False}, data, NOW))
    assert "tenant acme  12 connections  10 users" in whole
    assert "sends 3.0  refused 0" in whole
    assert "room acme/room0" in whole
    assert "NODE" not in whole


def test_numbers_are_short() -> None:
    assert [many(count) for count in (0, 1_204, 99_999, 120_400, 1_250_000)] == ["0", "1,204", "99,999", "120k", "1.2M"]
    assert [rate(per_s) for per_s in (0, 0.1, 9.9, 10, 1234.5)] == ["0", "0.1", "9.9", "10", "1,234"]


def test_parts_flow_onto_as_many_lines_as_they_need() -> None:
    assert flow("per second:", ["commands 3", "deliveries 4"], 24) == ["per second:  commands 3", "deliveries 4"]
    assert flow("", [], 10) == []
