"""The checker of chaos runs finds each broken promise, and nothing in a correct history."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from chaos.checker import GONE_S, HOLD_S, INVARIANTS, LATE_S, LEASE_S, PERIODS, Allowance, Checker, Contact
from chaos.families import FAMILIES, impossible
from chaos.names import answer
from chaos.story import Story


class History:
    """Two connected users: `ann` watches `bob`. Times are set, not waited for."""

    def __init__(self) -> None:
        self.checker = Checker(Story(quiet=True))
        self.ann, self.bob = self.come("ann"), self.come("bob")

    def come(self, user: str, ago_s: float = 100.0) -> Contact:
        now = time.time()
        contact = Contact(user, "phone", now - ago_s, now)
        self.checker.began(contact)
        self.checker.welcomed(contact)
        contact.welcomed_at = now - ago_s
        return contact

    def leave(self, contact: Contact, how: str, ago_s: float) -> None:
        self.checker.ended(contact, how)
        contact.ended_at = contact.last_frame_at = time.time() - ago_s

    def shows(self, state: str, version: int, ago_s: float = 0.0, **more: Any) -> None:
        """Let ann receive a change of bob."""
        since = round((time.time() - ago_s) * 1000)
        entry = {"user": "bob", "state": state, "version": version, "since": since, "last_seen": None} | more
        self.checker.received(self.ann, "presence.changed", entry)

    @property
    def found(self) -> list[str]:
        return [finding.invariant for finding in self.checker.findings]


def test_a_correct_history_has_no_finding() -> None:
    history = History()
    history.shows("online", 1, 50.0)
    history.leave(history.bob, "lost", PERIODS.grace_s + 2)
    history.shows("offline", 2, 0.5, last_seen=round((time.time() - PERIODS.grace_s - 2) * 1000))
    history.come("bob", 0.0)
    history.shows("online", 3)
    assert history.found == []
    assert history.checker.frames == 3


def test_a_user_who_is_connected_or_within_the_grace_must_not_be_offline() -> None:
    history = History()
    history.shows("offline", 2)
    assert history.found == ["no-flicker"]
    for how, ago_s in (("lost", PERIODS.grace_s - 2), ("silent", PERIODS.dead_s - 2)):
        history = History()
        history.leave(history.bob, how, ago_s)
        history.shows("offline", 2)
        assert history.found == ["no-flicker"], how


@pytest.mark.parametrize(("lost_ago_s", "found"), [(PERIODS.grace_s + 1, []), (PERIODS.grace_s - 2, ["no-flicker"])])
def test_a_silent_user_whose_socket_is_lost_may_be_offline_after_the_grace(lost_ago_s: float, found: list[str]) -> None:
    history = History()
    history.leave(history.bob, "silent", PERIODS.dead_s - 1.5)
    history.checker.ended(history.bob, "lost")
    history.bob.lost_at = time.time() - lost_ago_s
    history.shows("offline", 2)
    assert history.found == found


def test_a_fault_allows_its_own_effect_only() -> None:
    history = History()
    now = time.time()
    history.checker.allowances.append(Allowance("a node was stopped", frozenset({"bob"}), now - 1, now + 60))
    history.shows("offline", 2)
    assert history.found == []
    assert history.checker.allowed == {"a node was stopped": 1}
    history.checker.allowances[0].end = now - 0.5
    history.shows("online", 3)
    history.shows("offline", 4)
    assert history.found == ["no-flicker"]


def test_versions_rise_and_each_change_comes_once() -> None:
    history = History()
    history.shows("online", 5)
    history.shows("busy", 4)
    history.shows("busy", 6)
    assert history.found == ["versions-rise", "offline-once"]


def test_last_seen_is_never_later_than_the_last_connection() -> None:
    history = History()
    history.leave(history.bob, "bye", 2 * GONE_S)
    history.shows("offline", 2, 1.0, last_seen=round(time.time() * 1000))
    assert history.found == ["last-seen-true"]


async def test_typing_is_true_is_not_echoed_and_ends() -> None:
    history = History()
    start = {"room": "den", "user": "bob", "expires_in_ms": 5_000}
    history.checker.typed("bob", "den")
    history.checker.received(history.ann, "typing.started", start)
    assert history.found == []
    history.checker.received(history.bob, "typing.started", start)
    history.checker._typed["bob", "den"] -= HOLD_S + LATE_S + 1
    history.checker.received(history.ann, "typing.started", start)
    history.checker.received(history.ann, "typing.started", start | {"expires_in_ms": 60_000})
    assert history.found == ["typing-not-echoed", "typing-true", "typing-ends", "typing-true"]
    view = history.checker._views[history.ann]
    history.checker._typing_due(history.ann, ("den", "bob"), view.typing["den", "bob"])
    assert history.found[4:] == ["typing-ends"]
    await asyncio.sleep(0)


async def test_typing_that_a_fault_made_late_is_counted_and_must_have_ended_when_the_fault_has_healed() -> None:
    history = History()
    history.checker._typed["bob", "den"] = time.time() - HOLD_S - LATE_S - 1
    history.checker.fault_began()
    history.checker.received(history.ann, "typing.started", {"room": "den", "user": "bob", "expires_in_ms": 5_000})
    assert history.found == []
    assert history.checker.allowed == {"typing shown late during a fault": 1}
    assert [*history.checker.stuck_typing()] == []
    history.checker._views[history.ann].typing["den", "bob"] -= HOLD_S + LATE_S + 1
    assert [invariant for invariant, _ in history.checker.stuck_typing()] == ["typing-ends"]
    history.checker.received(history.ann, "typing.stopped", {"room": "den", "user": "bob"})
    assert [*history.checker.stuck_typing()] == []


def test_records_arrive_in_order_once_and_are_the_same_for_all() -> None:
    history = History()
    records = history.checker.records
    for last, number, key in ((None, 3, "c"), (3, 4, "d")):
        records.delivered(history.ann, "room:den", last, number, key)
    assert history.found == []
    records.delivered(history.ann, "room:den", 4, 6, "f")
    records.delivered(history.ann, "room:den", 6, 6, "f")
    records.delivered(history.bob, "room:den", 3, 4, "another")
    records.delivered(history.bob, "room:den", 8, 9, "c")
    assert history.found == ["records-in-order", "records-in-order", "records-same", "records-same"]


def test_a_confirmed_record_that_is_not_stored_is_found() -> None:
    history = History()
    records = history.checker.records
    records.confirm("room:den", "a", 1)
    records.confirm("room:den", "b", 2)
    records.compare("room:den", [(1, "a"), (2, "b")])
    assert history.found == []
    records.compare("room:den", [(1, "a")])
    records.compare("room:den", [(1, "a"), (3, "b")])
    assert history.found == ["records-kept", "records-in-order", "records-kept", "records-same"]


def test_screens_are_compared_with_the_truth() -> None:
    history = History()
    offline, online = ({"user": "bob", "state": state, "version": 1} for state in ("offline", "online"))

    def wrong(entry: dict[str, Any]) -> list[str]:
        return [invariant for invariant, _ in history.checker.wrong_screen("ann", {"bob": entry})]

    assert wrong(online) == []
    assert wrong(offline) == ["screen-true"]
    assert wrong(online | {"stale": True}) == ["screen-true"]
    history.leave(history.bob, "lost", GONE_S - 5)
    assert wrong(online) == wrong(offline) == []
    history.bob.ended_at = time.time() - GONE_S - 1
    assert wrong(online) == ["no-ghost"]


def test_every_family_needs_a_known_engine_and_the_bounds_fit_the_periods() -> None:
    assert {"kill", "stop", "flush", "failover", "slots", "links"} <= {*FAMILIES}
    assert impossible("slots", "sentinel")
    assert impossible("flush", "sentinel") is None
    assert max(LEASE_S + PERIODS.grace_s, PERIODS.dead_s + PERIODS.silent_s) < GONE_S
    assert {"no-flicker", "records-kept", "no-error"} <= {*INVARIANTS}


def test_the_name_server_answers_in_each_mode() -> None:
    question = b"\x05redis\x05chaos\x00\x00\x01\x00\x01"
    query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + question
    found = answer(query, "answer")
    assert found[:2] == query[:2]
    assert found.endswith(bytes([0, 4, 127, 0, 0, 1]))
    assert [answer(query, mode)[3] & 15 for mode in ("answer", "fail", "unknown")] == [0, 2, 3]
    other = query.replace(b"\x05chaos", b"\x05world")
    assert answer(other, "answer")[3] & 15 == 3
