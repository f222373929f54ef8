"""Rules of the presence record, one test for each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from greendot.presence.model import (
    NOBODY,
    Change,
    ManualStatus,
    NodeLife,
    RestoredState,
    SessionEpoch,
    Snapshot,
    UserPresence,
    VisibleState,
)

T0 = 1_800_000_000_000
LIVE = {"n1": NodeLife(), "n2": NodeLife()}
AUTO = ManualStatus(rev=1)
BUSY = ManualStatus("busy", text="in a meeting", rev=2)
INVISIBLE = ManualStatus("invisible", text="in a meeting", rev=2)


class Person:
    """A presence record, and its verbs at times counted from T0."""

    def __init__(self, manual: ManualStatus | None = AUTO, visible: VisibleState = NOBODY) -> None:
        self.record = UserPresence(visible, "Ann")
        self.nodes = dict(LIVE)
        self.manual = manual

    @property
    def visible(self) -> VisibleState:
        return self.record.visible

    @property
    def own(self) -> VisibleState:
        return self.record.own

    def come(
        self,
        at: int,
        session: str = "s1",
        *,
        device: str = "phone",
        conn: int = 1,
        node: str = "n1",
        idle: bool = False,
    ) -> Change | None:
        """Open a session and set the stored status."""
        _, change = self.record.touch(SessionEpoch(session, node, conn), device, idle, T0 + at, self.nodes)
        if self.manual is not None:
            known = self.record.manual is not None
            later = self.record.set_manual(self.manual, T0 + at, self.nodes)
            return change if known else later
        return change

    def touch(
        self,
        at: int,
        session: str = "s1",
        *,
        device: str = "phone",
        conn: int = 1,
        node: str = "n1",
        idle: bool | None = None,
    ) -> Change | None:
        return self.record.touch(SessionEpoch(session, node, conn), device, idle, T0 + at, self.nodes)[1]

    def linger(
        self, at: int, grace: int, session: str = "s1", *, conn: int = 1, node: str = "n1", heard: int | None = None
    ) -> tuple[int | None, Change | None]:
        heard = at if heard is None else heard
        return self.record.linger(SessionEpoch(session, node, conn), grace, T0 + heard, T0 + at, self.nodes)

    def leave(
        self, at: int, session: str = "s1", *, conn: int = 1, node: str = "n1"
    ) -> tuple[int | None, Change | None]:
        return self.record.leave(SessionEpoch(session, node, conn), T0 + at, self.nodes)

    def set(self, at: int, manual: ManualStatus) -> Change | None:
        return self.record.set_manual(manual, T0 + at, self.nodes)

    def settle(self, at: int) -> Change | None:
        return self.record.settle(T0 + at, self.nodes)


def told(change: Change | None) -> str | None:
    """Return the state that others receive; None if they receive nothing."""
    return change.visible.state if change is not None and change.public else None


# --- merge rule ---


def test_one_active_session_is_online() -> None:
    ann = Person()
    assert told(ann.come(0)) == "online"
    assert (ann.visible.state, ann.visible.since, ann.visible.last_seen) == ("online", T0, None)


def test_one_active_session_among_idle_ones_is_online() -> None:
    ann = Person()
    ann.come(0, "s1", idle=True)
    assert ann.visible.state == "idle"
    assert told(ann.come(1, "s2", idle=False)) == "online"


def test_a_user_is_idle_when_every_session_is() -> None:
    ann = Person()
    ann.come(0, "s1")
    ann.come(0, "s2", device="laptop")
    assert told(ann.touch(1, "s1", idle=True)) is None
    assert told(ann.touch(2, "s2", device="laptop", idle=True)) == "idle"
    assert ann.visible.since == T0 + 2


def test_busy_goes_before_online_and_idle() -> None:
    ann = Person()
    ann.come(0)
    assert told(ann.set(1, BUSY)) == "busy"
    assert told(ann.touch(2, idle=True)) is None
    assert (ann.visible.state, ann.visible.text) == ("busy", "in a meeting")


def test_invisible_goes_before_online_and_is_shown_as_offline() -> None:
    ann = Person()
    ann.come(0)
    assert told(ann.set(1, INVISIBLE)) == "offline"
    assert (ann.own.state, ann.own.status) == ("online", "invisible")


def test_no_session_is_offline_whatever_the_manual_status() -> None:
    for manual in (AUTO, BUSY):
        ann = Person(manual)
        ann.come(0)
        assert told(ann.linger(1, 0)[1]) == "offline"
        assert (ann.visible.state, ann.visible.text) == ("offline", None)


def test_a_status_text_is_shown_with_any_state_but_offline() -> None:
    ann = Person()
    ann.come(0)
    assert told(ann.set(1, ManualStatus(text="on the train", rev=2))) == "online"
    assert (ann.visible.text, ann.visible.since) == ("on the train", T0)
    ann.touch(2, idle=True)
    assert (ann.visible.state, ann.visible.text) == ("idle", "on the train")
    ann.linger(3, 0)
    assert ann.visible.text is None


def test_a_session_is_shown_to_no_user_until_the_status_is_known() -> None:
    ann = Person(manual=None)
    assert told(ann.come(0)) is None
    assert ann.visible == NOBODY
    assert told(ann.set(1, AUTO)) == "online"


def test_a_user_who_leaves_before_the_status_is_known_was_never_there() -> None:
    before = VisibleState("offline", since=T0 - 9, last_seen=T0 - 9, version=T0 - 9)
    ann = Person(manual=None, visible=before)
    ann.come(0)
    assert told(ann.linger(1, 0)[1]) is None
    assert ann.visible == before
    assert ann.record.empty


def test_a_status_that_is_set_after_an_unknown_session_ended_gives_the_state_a_start() -> None:
    ann = Person(manual=None)
    ann.come(0)
    ann.linger(1, 0)
    assert ann.own.since is None
    ann.come(2)
    ann.linger(3, 10)
    ann.set(20, BUSY)
    assert (ann.own.state, ann.own.status, ann.own.since) == ("offline", "busy", T0 + 20)


# --- manual status ---


def test_a_lower_revision_of_the_status_is_ignored() -> None:
    ann = Person()
    ann.come(0)
    ann.set(1, ManualStatus("busy", rev=5))
    assert ann.set(2, ManualStatus("auto", rev=4)) is None
    assert ann.visible.state == "busy"


def test_the_same_revision_again_changes_nothing() -> None:
    ann = Person()
    ann.come(0)
    ann.set(1, BUSY)
    assert ann.set(2, BUSY) is None


def test_a_status_ends_at_its_time_to_the_millisecond() -> None:
    ann = Person()
    ann.come(0)
    ann.set(1, ManualStatus("busy", until=T0 + 100, text="lunch", rev=2))
    assert ann.settle(99) is None
    assert told(ann.settle(100)) == "online"
    assert (ann.visible.text, ann.own.status, ann.own.until) == (None, "auto", None)


def test_a_status_that_has_ended_is_never_shown() -> None:
    ann = Person(ManualStatus("busy", until=T0 - 1, rev=3))
    assert told(ann.come(0)) == "online"


def test_a_status_that_has_ended_keeps_its_revision() -> None:
    ann = Person()
    ann.come(0)
    ann.set(1, ManualStatus("busy", until=T0 + 10, rev=5))
    ann.settle(10)
    assert ann.set(11, ManualStatus("invisible", rev=4)) is None
    assert told(ann.set(12, ManualStatus("invisible", rev=6))) == "offline"


@pytest.mark.parametrize(
    "verb",
    [
        lambda ann: ann.touch(10),
        lambda ann: ann.linger(10, 5_000)[1],
        lambda ann: ann.leave(10)[1],
        lambda ann: ann.settle(10),
    ],
)
def test_every_verb_ends_a_status_that_has_run_out(verb: Callable[[Person], Change | None]) -> None:
    ann = Person()
    ann.come(0)
    ann.set(1, ManualStatus("busy", until=T0 + 10, rev=2))
    assert told(verb(ann)) == "online"


def test_only_own_devices_are_notified_of_a_new_end_of_a_status() -> None:
    ann = Person()
    ann.come(0)
    ann.set(1, ManualStatus("busy", until=T0 + 100, rev=2))
    change = ann.set(2, ManualStatus("busy", until=T0 + 200, rev=3))
    assert change is not None
    assert (change.public, change.private) == (False, True)
    assert change.own.until == T0 + 200


# --- invisible ---


def test_who_becomes_invisible_seems_to_have_left_just_now() -> None:
    ann = Person()
    ann.come(0)
    ann.set(50, INVISIBLE)
    assert (ann.visible.state, ann.visible.since, ann.visible.last_seen) == ("offline", T0 + 50, T0 + 50)
    assert ann.visible.text is None


def test_while_invisible_nothing_others_can_read_moves() -> None:
    ann = Person()
    ann.come(0)
    ann.set(50, INVISIBLE)
    frozen = ann.visible
    changes = [
        ann.touch(60, idle=True),
        ann.touch(70, idle=False),
        ann.come(80, "s2", device="laptop"),
        ann.set(90, ManualStatus("invisible", text="other words", rev=3)),
        ann.linger(100, 0)[1],
        ann.linger(110, 0, "s2")[1],
    ]
    assert [told(change) for change in changes] == [None] * len(changes)
    assert ann.record.empty
    assert ann.visible is frozen


def test_own_devices_see_an_invisible_user_as_they_are() -> None:
    ann = Person()
    ann.come(0)
    ann.set(50, INVISIBLE)
    change = ann.touch(60, idle=True)
    assert change is not None
    assert change.private
    assert (change.own.state, change.own.status, change.own.text) == ("idle", "invisible", "in a meeting")


def test_who_comes_back_from_invisible_is_online_from_then_on() -> None:
    ann = Person()
    ann.come(0)
    ann.set(50, INVISIBLE)
    hidden = ann.visible.version
    assert told(ann.set(90, ManualStatus(rev=3))) == "online"
    assert ann.visible.since == T0 + 90
    assert ann.visible.version > hidden


def test_a_user_who_arrives_invisible_is_not_published() -> None:
    before = VisibleState("offline", since=T0 - 9, last_seen=T0 - 9, version=T0 - 9)
    ann = Person(INVISIBLE, before)
    assert told(ann.come(0)) is None
    assert ann.visible == before
    assert ann.own.state == "online"


# --- versions and changes ---


def test_a_version_is_the_time_or_one_more_than_the_last() -> None:
    ann = Person(visible=VisibleState(version=T0 + 1_000))
    ann.come(0)
    assert ann.visible.version == T0 + 1_001
    ann.touch(2_000, idle=True)
    assert ann.visible.version == T0 + 2_000
    ann.touch(2_000, idle=False)
    assert ann.visible.version == T0 + 2_001


def test_a_change_that_is_not_visible_is_not_published_and_keeps_its_version() -> None:
    ann = Person()
    ann.come(0)
    version = ann.visible.version
    assert [ann.touch(10), ann.settle(20), ann.linger(30, 5_000)[1], ann.leave(40)[1], ann.touch(50, conn=2)] == [
        None
    ] * 5
    assert ann.visible.version == version


def test_a_second_device_is_visible_to_readers_but_not_published() -> None:
    ann = Person()
    ann.come(0)
    change = ann.come(1, "s2", device="laptop")
    assert change is not None
    assert (change.public, change.private) == (False, False)
    assert change.devices == ["laptop", "phone"]


def test_two_sessions_of_one_device_list_it_once() -> None:
    ann = Person()
    ann.come(0, "s1")
    ann.come(1, "s2")
    assert ann.record.devices == ["phone"]


# --- verbs: touch ---


def test_touch_answers_whether_the_session_was_there_before() -> None:
    ann = Person()
    ref = SessionEpoch("s1", "n1", 1)
    assert ann.record.touch(ref, "phone", False, T0, LIVE)[0] is False
    assert ann.record.touch(ref._replace(conn=2), "phone", None, T0 + 1, LIVE)[0] is True


def test_a_session_whose_linger_is_over_was_not_there_before() -> None:
    ann = Person()
    ann.come(0)
    ann.linger(0, 1_000)
    assert ann.record.touch(SessionEpoch("s1", "n1", 2), "phone", None, T0 + 1_000, LIVE)[0] is False


def test_a_return_is_not_activity() -> None:
    ann = Person()
    ann.come(0, idle=True)
    ann.linger(10, 1_000)
    assert ann.touch(20, conn=2, idle=None) is None
    assert ann.visible.state == "idle"


def test_a_late_word_of_an_older_connection_does_not_bring_the_session_back() -> None:
    ann = Person()
    ann.come(0, conn=2)
    ann.linger(10, 1_000, conn=2)
    ann.touch(20, conn=1, idle=False)
    assert told(ann.settle(1_010)) == "offline"


def test_a_late_word_of_an_older_connection_does_not_make_the_session_active() -> None:
    ann = Person()
    ann.come(0, conn=2, idle=True)
    assert ann.touch(20, conn=1, idle=False) is None
    assert ann.visible.state == "idle"


def test_a_session_moves_to_another_node_whatever_its_connection_number() -> None:
    ann = Person()
    ann.come(0, conn=7, node="n1")
    ann.touch(10, conn=1, node="n2")
    assert ann.linger(20, 0, conn=7, node="n1") == (None, None)
    assert told(ann.linger(30, 0, conn=1, node="n2")[1]) == "offline"


# --- verbs: linger and leave ---


def test_the_end_of_a_connection_that_the_record_has_missed_ends_the_session() -> None:
    ann = Person()
    ann.come(0, conn=2)
    assert ann.linger(10, 0, conn=1) == (None, None)
    assert ann.linger(10, 1, conn=3) == (None, None)  # the node writes the session first
    assert ann.linger(10, 0, conn=3, node="n2") == (None, None)
    remaining, change = ann.linger(20, 0, conn=3)
    assert (remaining, told(change)) == (0, "offline")


def test_a_lingering_session_counts_until_its_deadline_to_the_millisecond() -> None:
    ann = Person()
    ann.come(0)
    assert ann.linger(100, 5_000) == (5_000, None)
    assert ann.settle(5_099) is None
    assert told(ann.settle(5_100)) == "offline"


def test_leaving_early_answers_what_remains() -> None:
    ann = Person()
    ann.come(0)
    ann.linger(100, 5_000)
    assert ann.leave(1_100) == (4_000, None)
    assert ann.leave(5_099) == (1, None)
    assert ann.visible.state == "online"


def test_leaving_after_the_linger_reports_offline_only_once() -> None:
    ann = Person()
    ann.come(0)
    ann.linger(100, 5_000)
    remaining, change = ann.leave(5_100)
    assert (remaining, told(change)) == (None, "offline")
    assert ann.leave(5_101) == (None, None)
    assert ann.settle(9_000) is None


def test_a_linger_of_nothing_is_a_leave() -> None:
    ann = Person()
    ann.come(0)
    remaining, change = ann.linger(10, 0)
    assert (remaining, told(change)) == (0, "offline")
    assert ann.record.empty


def test_leaving_does_not_end_a_session_that_is_connected() -> None:
    ann = Person()
    ann.come(0)
    assert ann.leave(10) == (None, None)
    assert ann.visible.state == "online"


@pytest.mark.parametrize(
    ("other", "grace"),
    [
        (SessionEpoch("s2", "n1", 2), 0),
        (SessionEpoch("s1", "n2", 2), 0),
        (SessionEpoch("s1", "n1", 1), 0),
        (SessionEpoch("s1", "n1", 3), 5_000),  # with grace 0, it ends the session
    ],
)
def test_a_close_must_match_session_incarnation_and_connection(other: SessionEpoch, grace: int) -> None:
    ann = Person()
    ann.come(0, conn=2)
    assert ann.record.linger(other, grace, T0, T0 + 10, LIVE) == (None, None)
    ann.linger(20, 1_000, conn=2)
    assert ann.record.leave(other, T0 + 30, LIVE) == (None, None)
    assert ann.visible.state == "online"


def test_an_old_sockets_late_close_cannot_end_a_resumed_session() -> None:
    ann = Person()
    ann.come(0, conn=1)
    ann.touch(10, conn=2)
    assert ann.linger(20, 0, conn=1) == (None, None)
    assert ann.leave(30, conn=1) == (None, None)
    assert ann.visible.state == "online"


def test_a_linger_that_is_over_cannot_be_prolonged() -> None:
    ann = Person()
    ann.come(0)
    ann.linger(0, 1_000)
    remaining, change = ann.linger(1_000, 5_000)
    assert (remaining, told(change)) == (None, "offline")


# --- leaving ---


def test_a_return_within_the_grace_publishes_no_change() -> None:
    ann = Person()
    ann.come(0)
    ann.linger(10, 1_000)
    assert ann.touch(1_009, conn=2) is None
    assert ann.settle(60_000) is None


def test_a_new_session_of_the_same_device_ends_the_linger() -> None:
    ann = Person()
    ann.come(0, "old")
    ann.linger(10, 1_000, "old")
    assert ann.come(20, "new", conn=2) is None
    assert ann.leave(1_010, "old") == (None, None)
    assert told(ann.linger(2_000, 0, "new", conn=2)[1]) == "offline"


def test_a_session_of_another_device_does_not_end_the_linger() -> None:
    ann = Person()
    ann.come(0, "old", idle=False)
    ann.linger(10, 1_000, "old")
    ann.come(20, "new", device="laptop", idle=True)
    assert ann.visible.state == "online"
    assert ann.record.devices == ["laptop", "phone"]
    assert told(ann.settle(1_010)) == "idle"


def test_the_same_device_opened_twice_is_two_sessions() -> None:
    ann = Person()
    ann.come(0, "one")
    ann.come(1, "two")
    assert told(ann.linger(10, 0, "one")[1]) is None
    assert told(ann.linger(20, 0, "two")[1]) == "offline"


def test_an_expired_linger_is_published_by_the_next_verb() -> None:
    ann = Person()
    ann.come(0)
    ann.linger(0, 1_000)
    assert told(ann.set(2_000, BUSY)) == "offline"
    assert ann.visible.since == T0 + 2_000


def test_a_late_return_before_a_settle_publishes_no_change() -> None:
    ann = Person()
    ann.come(0)
    ann.linger(0, 1_000)
    assert ann.touch(2_000, conn=2) is None
    assert ann.visible.state == "online"


# --- last seen ---


def test_last_seen_is_the_time_of_the_last_frame_of_the_client() -> None:
    ann = Person()
    ann.come(0)
    ann.linger(75_000, 15_000, heard=1_000)
    ann.leave(90_000)
    assert (ann.visible.last_seen, ann.visible.since) == (T0 + 1_000, T0 + 90_000)


def test_last_seen_is_the_latest_of_all_devices() -> None:
    ann = Person()
    ann.come(0, "s1")
    ann.come(0, "s2", device="laptop")
    ann.linger(100, 0, "s1", heard=90)
    ann.linger(200, 0, "s2", heard=50)
    assert ann.visible.last_seen == T0 + 90


def test_no_online_user_has_a_last_seen() -> None:
    ann = Person(visible=VisibleState("offline", since=1, last_seen=1, version=1))
    ann.come(0)
    assert ann.visible.last_seen is None


# --- nodes ---


def test_sessions_of_a_dead_node_count_until_its_grace_is_over() -> None:
    ann = Person()
    ann.come(0)
    ann.nodes["n1"] = NodeLife(last_renewal=T0 + 500, ends=T0 + 30_500)
    assert ann.settle(30_499) is None
    assert told(ann.settle(30_500)) == "offline"
    assert ann.visible.last_seen == T0 + 500


def test_sessions_of_a_live_node_outlive_a_dead_one() -> None:
    ann = Person()
    ann.come(0, "s1", node="n1")
    ann.come(0, "s2", node="n2", device="laptop")
    ann.nodes["n1"] = NodeLife(T0, T0 + 10)
    assert told(ann.settle(10)) is None
    assert ann.record.devices == ["laptop"]


def test_a_session_of_an_unknown_node_does_not_count() -> None:
    ann = Person()
    ann.come(0)
    del ann.nodes["n1"]
    assert told(ann.settle(10)) == "offline"
    assert ann.visible.last_seen == T0 + 10


def test_a_session_that_returns_on_another_node_survives_the_death_of_the_first() -> None:
    ann = Person()
    ann.come(0)
    ann.nodes["n1"] = NodeLife(T0 + 500, T0 + 30_500)
    assert ann.touch(600, node="n2") is None
    assert ann.settle(99_000) is None


def test_the_last_seen_of_a_lingering_user_of_a_dead_node_is_the_time_of_the_last_frame() -> None:
    ann = Person()
    ann.come(0)
    ann.linger(100, 60_000, heard=40)
    ann.nodes["n1"] = NodeLife(T0 + 500, T0 + 30_500)
    ann.settle(30_500)
    assert ann.visible.last_seen == T0 + 40


def test_who_lingered_once_and_returned_is_last_seen_at_the_nodes_last_renewal() -> None:
    ann = Person()
    ann.come(0)
    ann.linger(100, 1_000)
    ann.touch(200, conn=2)
    ann.nodes["n1"] = NodeLife(T0 + 3_600_000, T0 + 3_630_000)
    ann.settle(3_630_000)
    assert ann.visible.last_seen == T0 + 3_600_000


# --- initial record ---


def test_an_unknown_user_is_offline_without_a_version_or_a_setting() -> None:
    assert (NOBODY.state, NOBODY.version, ManualStatus().status, ManualStatus().rev) == ("offline", 0, "auto", 0)
    assert UserPresence().turned is None


def test_a_state_is_current_unless_the_engine_marks_it_otherwise() -> None:
    ann = Person()
    change = ann.come(0)
    assert change is not None
    assert change.restored is False
    assert Snapshot(ann.visible, ann.own, None, []).stale is False


# --- arrivals and departures that others see ---


def test_a_record_shows_whether_the_user_turned_visibly_online_or_offline() -> None:
    ann = Person()
    ann.come(0)
    assert ann.record.turned is True
    ann.touch(1, idle=True)
    assert ann.record.turned is None
    ann.linger(2, 10)
    assert ann.record.turned is None
    ann.leave(12)
    assert ann.record.turned is False
    ann.settle(13)
    assert ann.record.turned is None


def test_who_hides_is_seen_going_and_who_shows_up_coming() -> None:
    ann = Person()
    ann.come(0)
    ann.set(1, INVISIBLE)
    assert ann.record.turned is False
    ann.touch(2, idle=True)
    assert ann.record.turned is None
    ann.set(3, ManualStatus(rev=3))
    assert ann.record.turned is True


# --- versions while own devices and others see different states ---


def test_versions_continue_from_those_sent_to_own_devices() -> None:
    ann = Person()
    ann.come(0)
    ann.set(10, INVISIBLE)
    for _ in range(3):
        ann.touch(10, idle=not ann.record.sessions["s1"].idle)
    assert (ann.visible.version, ann.own.version) == (T0 + 10, T0 + 13)
    ann.set(10, ManualStatus(rev=3))
    assert (ann.visible.version, ann.own.version) == (T0 + 14, T0 + 14)


def test_one_object_serves_both_faces_while_they_agree() -> None:
    ann = Person()
    ann.come(0)
    assert ann.own is ann.visible
    ann.set(1, INVISIBLE)
    assert ann.own is not ann.visible


def test_a_later_last_frame_does_not_move_the_last_seen_of_a_user_who_seems_offline() -> None:
    ann = Person()
    ann.come(0)
    ann.set(50, INVISIBLE)
    ann.come(60, "s2", device="laptop")
    ann.linger(70, 0, "s2", heard=65)
    ann.set(80, ManualStatus("invisible", until=T0 + 999, rev=3))
    assert ann.visible.last_seen == T0 + 50


def test_a_new_status_of_who_is_offline_keeps_the_last_seen() -> None:
    gone = VisibleState("offline", since=T0 - 9, last_seen=T0 - 9, version=T0 - 9)
    ann = Person(BUSY, gone)
    ann.nodes.clear()
    change = ann.come(0)  # its node does not count
    assert change is not None
    assert (ann.own.state, ann.own.status, ann.own.last_seen, ann.own.since) == ("offline", "busy", T0 - 9, T0 - 9)


def test_a_change_of_name_is_reported_once() -> None:
    ann = Person()
    ann.come(0)
    ann.record.name = "Anna"
    change = ann.settle(1)
    assert change is not None
    assert (change.name, change.public, change.private) == ("Anna", False, False)
    assert ann.settle(2) is None


def test_a_restore_after_a_loss_renews_versions_that_are_older() -> None:
    ann = Person()
    ann.come(0)
    nodes, ref = ann.nodes, SessionEpoch("s1", "n1", 1)
    _, change = ann.record.touch(ref, "phone", False, T0 + 900, nodes, restored=RestoredState(T0, T0))
    assert (change, ann.visible.version) == (None, T0)
    _, change = ann.record.touch(ref, "phone", False, T0 + 900, nodes, restored=RestoredState(T0, T0 + 1))
    assert change is not None
    assert (change.public, change.private) == (True, True)
    assert (ann.visible.since, ann.visible.version) == (T0, T0 + 900)
    assert ann.own is ann.visible


def test_what_is_restored_began_when_it_did() -> None:
    ann = Person()
    ann.record.set_manual(AUTO, T0, ann.nodes)
    ann.record.touch(SessionEpoch("s1", "n1", 1), "phone", False, T0, ann.nodes, restored=RestoredState(T0 - 500))
    assert (ann.visible.state, ann.visible.since) == ("online", T0 - 500)


# --- late messages ---


def test_a_late_word_answers_that_the_session_is_there() -> None:
    ann = Person()
    ann.come(0, conn=2)
    there, _ = ann.record.touch(SessionEpoch("s1", "n1", 1), "phone", None, T0 + 1, ann.nodes)
    assert there is True


def test_a_lingering_connection_ends_even_if_it_sends_a_late_touch() -> None:
    ann = Person()
    ann.come(0)
    ann.linger(10, 100)
    ann.touch(20)
    assert told(ann.settle(110)) == "offline"


def test_only_a_new_connection_ends_the_lingers_of_its_device() -> None:
    ann = Person()
    ann.come(0, "s1")
    ann.come(0, "s2")
    ann.linger(10, 100, "s1")
    ann.touch(20, "s2")
    assert [*ann.record.sessions] == ["s1", "s2"]
    ann.touch(30, "s2", conn=2)
    assert [*ann.record.sessions] == ["s2"]


def test_a_new_connection_ends_no_session_that_is_connected() -> None:
    ann = Person()
    ann.come(0, "s1")
    ann.come(0, "s2")
    ann.touch(10, "s2", conn=2)
    assert [*ann.record.sessions] == ["s1", "s2"]


# --- verbs: adopt ---


def test_a_session_goes_on_under_another_id_with_what_it_was() -> None:
    ann = Person()
    ann.come(0, idle=True)
    ann.linger(10, 100)
    found, change = ann.record.adopt("s1", SessionEpoch("s9", "n2", 7), T0 + 50, ann.nodes)
    assert (found, change) == (("n1", True), None)
    found = ann.record.sessions["s9"]
    assert [*ann.record.sessions] == ["s9"]
    assert (found.incarnation, found.conn, found.deadline, found.heard, found.idle) == ("n2", 7, None, 0, True)
    assert ann.settle(500) is None


def test_a_session_that_is_over_or_unknown_is_not_adopted() -> None:
    ann = Person()
    ann.come(0)
    assert ann.record.adopt("s2", SessionEpoch("s9", "n1", 1), T0 + 1, ann.nodes) == (None, None)
    ann.linger(10, 100)
    found, change = ann.record.adopt("s1", SessionEpoch("s9", "n1", 1), T0 + 110, ann.nodes)
    assert (found, told(change)) == (None, "offline")


# --- the clock ---


def test_a_clock_that_is_set_forward_prolongs_no_linger_and_shortens_none() -> None:
    ann = Person()
    ann.come(0, "s1")
    ann.come(0, "s2", device="laptop")
    ann.linger(10, 100, "s1")
    ann.record.shift(5_000)
    assert ann.record.sessions["s2"].deadline is None
    assert ann.leave(5_109, "s1")[0] == 1
    ann.settle(5_110)
    assert [*ann.record.sessions] == ["s2"]


def test_a_status_of_the_same_revision_is_taken_again() -> None:
    """A node that read the status while it expired sets it again as it is stored."""
    ann = Person()
    ann.come(0)
    ann.set(1, ManualStatus("busy", rev=2))
    assert told(ann.set(2, ManualStatus("auto", rev=2))) == "online"
