"""Packed presence records: read exactly as the Lua scripts write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.engine.redis.record_codec import (
    PackedSession,
    escape,
    nodes_of,
    read_change,
    read_sessions,
    read_snapshot,
    read_visible,
    unescape,
)
from greendot.presence.model import NOBODY, Snapshot, VisibleState

NOW = 0x500
ALIVE = {"k1", "k2"}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_survives(text: str) -> None:
    packed = escape(text)
    assert not set(packed) & set("|,;")
    assert unescape(packed) == text


def test_no_text_is_none() -> None:
    assert (escape(None), escape(""), unescape("")) == ("", "", None)


def test_a_face_is_read_with_what_is_left_out() -> None:
    assert read_visible("f") == VisibleState()
    assert read_visible("o18f") == VisibleState("online", 0x18F, None, 0x18F)
    assert read_visible("f18f,1,2,,i,5") == VisibleState("offline", 1, 2, 0x18F, None, "invisible", 5)
    assert read_visible("b2,,,In%3B out") == VisibleState("busy", 2, None, 2, "In; out")


def test_a_change_is_read_with_whom_it_is_for() -> None:
    change = read_change("o1|f2,1|A%7CB|phone,tv|1||")
    assert (change.visible.state, change.own.state, change.name, change.devices) == (
        "online",
        "offline",
        "A|B",
        ["phone", "tv"],
    )
    assert (change.public, change.private, change.restored) == (True, False, False)
    assert read_change("o1|o1||||1|1").restored


# --- snapshots ---


def snapshot(record: str, alive: set[str] = ALIVE, now: int = NOW) -> Snapshot | None:
    return read_snapshot(record.encode(), alive, now)


def test_the_snapshot_of_an_unknown_user_is_empty() -> None:
    assert snapshot("") == Snapshot(NOBODY, NOBODY, None, [])


def test_a_user_without_sessions_is_read_from_what_is_kept_of_them() -> None:
    visible = VisibleState("offline", 0x10, 0xF, 0x10)
    assert snapshot("f10,,f|Zo%2Cë") == Snapshot(visible, visible, "Zo,ë", [])


def test_a_user_with_sessions_is_read_with_both_faces_and_devices() -> None:
    found = snapshot("f1|b2,2,,Lunch,i|A%7CB|i,3,,Lunch||k1-s1,tv,1;k2-s2,,2,i;k2-s3,tv,3")
    assert found is not None
    assert (found.visible, found.own) == (
        VisibleState("offline", 1, None, 1),
        VisibleState("busy", 2, None, 2, "Lunch", "invisible"),
    )
    assert (found.name, found.devices) == ("A|B", ["default", "tv"])


@pytest.mark.parametrize("record", ["o1||Zoë|a||k1-s1,tv,1", "i1||Zoë|a|3f|k1-s1,tv,1f,i", "f1||Zoë|a||k1-s-1,tv,1"])
def test_the_common_record_is_read_as_any_other(record: str) -> None:
    """A common record has a fast path. A revision makes the same record take the general path."""
    assert snapshot(record) == snapshot(record.replace("|a|", "|a,1|")) is not None
    assert snapshot(record, {"k2"}) is None
    assert snapshot(record.replace("tv", "")).devices == ["default"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "record",
    [
        "o1|||a||k1-s1,tv,1,,500",  # a linger that ends now
        "o1|||a||k1-s1,tv,1,,4ff",
        "o1|||a||k2-s2,tv,1;k1-s1,tv,1,i,4ff,4f0",  # one of several
        "b1|||b,1,500||k1-s1,tv,1",  # a status that ends now
        "o1|||a||k9-s1,tv,1",  # a node that is not known to live
        "o1|||a||k1-s1,tv,1,,,,k9",  # the same, but the record names the node
        "o1|||a,1||k2-s2,tv,1;k9-s1,tv,1",
    ],
)
def test_a_record_in_which_something_may_have_run_out_is_not_read_but_settled_first(record: str) -> None:
    assert snapshot(record) is None


@pytest.mark.parametrize(
    "record", ["o1|||a||k1-s1,tv,1,,501", "b1|||b,1,501||k1-s1,tv,1", "o1|||a||k9-s1,tv,1,,,,k1", "o1|||||k1-s1,tv,1"]
)
def test_what_has_not_run_out_is_read(record: str) -> None:
    found = snapshot(record)
    assert found is not None
    assert found.devices == ["tv"]


# --- sessions ---


def test_sessions_are_read_with_what_is_left_out() -> None:
    assert read_sessions("o1||A|a||k1-s1,,1;k2-s2,tv,1f,i,2a,29;k2-s3,tv,2,,,,k9") == [
        PackedSession("k1-s1", "default", 1, False, None, "k1"),
        PackedSession("k2-s2", "tv", 0x1F, True, 0x2A, "k2"),
        PackedSession("k2-s3", "tv", 2, False, None, "k9"),
    ]


@pytest.mark.parametrize("record", ["", "f1|A", "o1||A|a||"])
def test_a_record_without_sessions_has_none(record: str) -> None:
    assert read_sessions(record) == []
    assert nodes_of(record) == set()


def test_a_session_names_its_node_unless_the_record_does() -> None:
    assert nodes_of("o1||A|a||k1-s1,phone,1;k2-s2,tv,2,i,,,k9") == {"k1", "k9"}
