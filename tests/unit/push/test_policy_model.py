"""Push policy: recipients and times of pushes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from greendot.push.policy_model import (
    CHECK_AGAIN_MS,
    CHECK_ROOM_MS,
    HOUR_MS,
    RETRIED_MS,
    Decision,
    Importance,
    PushCandidate,
    PushPolicy,
    QueuePolicy,
    RecipientState,
    decide,
)

T = 1_800_000_000_000
ACTIVE, IDLE, OFFLINE, UNKNOWN = (
    RecipientState("online"),
    RecipientState("idle"),
    RecipientState("offline"),
    RecipientState(None),
)
NEWS, POLICY = PushCandidate(T), PushPolicy()
ALARM = PushCandidate(T, room="lobby", must_ack=True, seen=True)
MORNING = T + 7 * HOUR_MS


def test_who_is_away_gets_it_at_once() -> None:
    assert decide(NEWS, OFFLINE, POLICY, T) == Decision("now", "offline")


def test_who_nothing_is_known_of_gets_it_at_once() -> None:
    assert decide(NEWS, UNKNOWN, POLICY, T) == Decision("now", "presence_unknown")


@pytest.mark.parametrize(("seen", "reason", "hold_s"), [(ACTIVE, "active", 60), (IDLE, "idle", 30)])
def test_who_is_here_gets_it_if_it_stays_unseen(seen: RecipientState, reason: str, hold_s: int) -> None:
    held = decide(NEWS, seen, POLICY, T)
    assert held == ("later", reason, T + hold_s * 1000)
    assert decide(NEWS, seen, POLICY, held.at - 1).action == "later"
    assert decide(NEWS, seen, POLICY, held.at) == Decision("now", "unseen")


def test_who_goes_while_it_is_held_gets_it_then() -> None:
    assert decide(NEWS, OFFLINE, POLICY, T + 1).action == "now"


def test_what_was_seen_is_never_pushed() -> None:
    assert decide(PushCandidate(T, done=True), OFFLINE, POLICY, T) == Decision("never", "seen")


def test_what_is_to_be_acknowledged_is_not_done_by_being_seen() -> None:
    """Connected devices get the notification again for a while. Then it is pushed, even if a device has shown it."""
    retried_at = T + RETRIED_MS
    assert (RETRIED_MS, decide(ALARM, OFFLINE, POLICY, T)) == (495_000, Decision("now", "offline"))
    for here in (ACTIVE, IDLE, RecipientState("online", {"lobby"})):
        assert decide(ALARM, here, POLICY, retried_at) == Decision("now", "unacknowledged")
    for here in (ACTIVE, IDLE):
        assert decide(ALARM, here, POLICY, T) == ("later", "awaiting_ack", T + CHECK_AGAIN_MS)
        assert decide(ALARM, here, POLICY, retried_at - 5) == ("later", "awaiting_ack", retried_at)
    assert decide(ALARM, RecipientState("online", {"lobby"}), POLICY, retried_at - 1).reason == "in_the_room"


def test_what_is_to_be_acknowledged_and_not_even_seen_is_held_like_everything() -> None:
    unseen = structs.replace(ALARM, seen=False, room=None)
    assert decide(unseen, ACTIVE, POLICY, T) == ("later", "active", T + 60_000)
    assert decide(unseen, ACTIVE, POLICY, T + 60_000) == Decision("now", "unseen")
    assert decide(structs.replace(ALARM, done=True), OFFLINE, POLICY, T) == Decision("never", "seen")


def test_messages_of_a_room_are_not_pushed_while_the_user_is_in_it() -> None:
    about = PushCandidate(T, room="lobby")
    late = T + 10 * HOUR_MS
    assert decide(about, RecipientState("online", {"lobby"}), POLICY, late) == (
        "later",
        "in_the_room",
        late + CHECK_ROOM_MS,
    )
    brief = PushPolicy(active_hold_s=3)
    assert decide(about, RecipientState("online", {"lobby"}), brief, late).at == late + 3_000, (
        "a stale room entry must delay the push by one hold at most"
    )
    assert decide(about, RecipientState("online", {"other"}), POLICY, late) == Decision("now", "unseen")
    assert decide(NEWS, RecipientState("online", {"lobby"}), POLICY, late) == Decision("now", "unseen")


def test_busy_holds_it_until_its_end_and_is_looked_at_again_before() -> None:
    busy = RecipientState("offline", busy=True, busy_until=T + 5_000)
    assert decide(NEWS, busy, POLICY, T) == ("later", "busy", T + 5_000)
    assert decide(NEWS, busy, POLICY, T + 5_000) == Decision("now", "offline")
    endless = RecipientState("offline", busy=True)
    assert decide(NEWS, endless, POLICY, T) == ("later", "busy", T + CHECK_AGAIN_MS)


def test_the_cap_holds_what_is_over_it_until_the_hour_has_room() -> None:
    capped, recent = PushPolicy(per_hour=2), [T - HOUR_MS, T - 3_000, T - 2_000]
    assert decide(NEWS, OFFLINE, capped, T, recent=recent) == ("later", "over_the_cap", T - 3_000 + HOUR_MS)
    assert decide(NEWS, OFFLINE, capped, T - 3_000 + HOUR_MS, recent=recent).action == "now"


def test_what_is_critical_passes_all_that_the_user_chose_but_not_what_is_seen() -> None:
    critical = PushCandidate(T, importance="critical")
    busy = RecipientState("offline", busy=True)
    assert decide(critical, busy, PushPolicy(per_hour=1), T, quiet_until=MORNING, recent=[T]) == (
        "now",
        "critical",
        0,
    )
    assert decide(critical, OFFLINE, POLICY, T) == Decision("now", "offline")
    assert decide(PushCandidate(T, "critical", done=True), busy, POLICY, T).action == "never"


@pytest.mark.parametrize(
    "seen", [ACTIVE, IDLE, RecipientState("online", {"lobby"}), RecipientState("online", busy=True)]
)
def test_what_is_critical_does_not_wait_for_a_user_who_is_here(seen: RecipientState) -> None:
    for must_ack in (False, True):
        critical = PushCandidate(T, "critical", room="lobby", must_ack=must_ack)
        assert decide(critical, seen, POLICY, T) == Decision("now", "critical")
        assert decide(structs.replace(critical, importance="high"), seen, POLICY, T).action == "later"


def test_what_is_critical_and_seen_waits_for_the_acknowledgement_alone() -> None:
    """The user has looked at it. Connected devices get it again; busy and quiet hours do not delay the push further."""
    critical = structs.replace(ALARM, importance="critical")
    busy = RecipientState("online", busy=True, busy_until=T + HOUR_MS)
    assert decide(critical, busy, POLICY, T, quiet_until=MORNING) == ("later", "awaiting_ack", T + CHECK_AGAIN_MS)
    assert decide(critical, busy, POLICY, T + RETRIED_MS, quiet_until=MORNING) == Decision("now", "critical")
    assert decide(critical, ACTIVE, POLICY, T + RETRIED_MS) == Decision("now", "unacknowledged")


def test_the_wait_that_ends_last_is_the_reason() -> None:
    seen = RecipientState("online", busy=True, busy_until=T + 1_000)
    assert decide(NEWS, seen, POLICY, T, quiet_until=MORNING) == ("later", "quiet_hours", MORNING)
    assert decide(NEWS, seen, POLICY, T).reason == "active"


@pytest.mark.parametrize(
    ("matter", "policy", "reason"),
    [
        (PushCandidate(T, expires_at=T), POLICY, "expired"),
        (NEWS, PushPolicy(enabled=False), "kind_off"),
        (PushCandidate(T, "low"), POLICY, "importance_low"),
        (NEWS, PushPolicy(least="high"), "importance_low"),
    ],
)
def test_what_is_over_or_unwanted_is_never_pushed(matter: PushCandidate, policy: PushPolicy, reason: str) -> None:
    assert decide(matter, OFFLINE, policy, T) == ("never", reason, 0)


# --- properties ---

seens = st.builds(
    RecipientState,
    st.sampled_from(["online", "idle", "offline", None]),
    st.sampled_from([(), ("lobby",)]),
    st.booleans(),
    st.none() | st.integers(T - 1, T + 3 * HOUR_MS),
)
importances: st.SearchStrategy[Importance] = st.sampled_from(["normal", "high", "critical"])


@given(seens, importances, st.sampled_from([None, "lobby"]), st.lists(st.integers(T - HOUR_MS, T), max_size=5))
def test_a_user_who_turns_out_offline_is_pushed_to_whatever_state_was_known_before(
    ghost: RecipientState, importance: Importance, room: str | None, recent: list[int]
) -> None:
    """The policy decides again at the times it returned, and the recipient turns out to be offline."""
    matter, policy, now = PushCandidate(T, importance, room), PushPolicy(per_hour=3), T
    first = decide(matter, ghost, policy, now, quiet_until=MORNING, recent=recent)
    assert first.action == "now" or first.at > now
    asked = 0
    while (found := decide(matter, OFFLINE, policy, now, quiet_until=MORNING, recent=recent)).action != "now":
        assert found.action == "later"
        assert found.at > now
        now, asked = found.at, asked + 1
        assert asked < 4


def test_no_push_is_capped_and_no_notification_counts_as_seen_by_default() -> None:
    assert decide(NEWS, OFFLINE, PushPolicy(), T, recent=[T] * 1_000).action == "now"
    assert decide(PushCandidate(T, must_ack=True), ACTIVE, POLICY, T).reason == "active"


def test_each_importance_is_above_the_one_before() -> None:
    ranked: list[Importance] = ["low", "normal", "high", "critical"]
    pushed = {
        least: [
            one for one in ranked if decide(PushCandidate(T, one), OFFLINE, PushPolicy(least=least), T).action == "now"
        ]
        for least in ranked
    }
    assert pushed == {least: ranked[place:] for place, least in enumerate(ranked)}


def test_a_push_for_a_room_its_user_is_in_is_checked_again_after_a_second_at_the_earliest() -> None:
    decision = decide(
        PushCandidate(T, room="lobby"), RecipientState("online", {"lobby"}), PushPolicy(active_hold_s=0.0), T
    )
    assert decision == ("later", "in_the_room", T + 1_000)


def test_notifications_are_queued_where_the_tenant_pushes_and_their_kind_is_on() -> None:
    policy = QueuePolicy(pushes=True, kinds_off=frozenset({"digest"}))
    assert policy.queues("mention")
    assert not policy.queues("digest")
    assert not QueuePolicy(pushes=False).queues("mention")
    assert not QueuePolicy().queues("mention")
    assert QueuePolicy(pushes=True).queues("digest")
