from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from greendot.rooms.typing_model import TypingUsers, Typist

TTL, THROTTLE = 5_000, 2_000
T0 = 1_800_000_000_000


def typists() -> TypingUsers:
    return TypingUsers(TTL, THROTTLE)


def users(room: TypingUsers, now: int) -> list[str]:
    return [typist.user for typist in room.active(now)]


def test_no_user_types_in_a_new_room() -> None:
    assert typists().active(T0) == []


def test_a_typer_counts_for_exactly_the_time_to_live() -> None:
    room = typists()
    assert room.start("ann", "Ann", T0)
    assert room.active(T0) == [Typist("ann", "Ann", TTL)]
    assert room.active(T0 + TTL - 1) == [Typist("ann", "Ann", 1)]
    assert room.active(T0 + TTL) == []


def test_a_start_within_the_throttle_is_not_let_through_and_does_not_prolong() -> None:
    room = typists()
    room.start("ann", None, T0)
    assert not room.start("ann", None, T0 + THROTTLE - 1)
    assert room.active(T0 + TTL - 1) == [Typist("ann", None, 1)]


def test_a_start_after_the_throttle_goes_on_for_a_whole_time_to_live() -> None:
    room = typists()
    room.start("ann", None, T0)
    assert room.start("ann", None, T0 + THROTTLE)
    assert room.active(T0 + THROTTLE + TTL - 1) == [Typist("ann", None, 1)]
    assert room.active(T0 + THROTTLE + TTL) == []


def test_start_stop_start_is_throttled_to_the_millisecond() -> None:
    room = typists()
    assert room.start("ann", None, T0)
    assert room.stop("ann", T0 + 10)
    assert not room.start("ann", None, T0 + THROTTLE - 1)
    assert users(room, T0 + THROTTLE - 1) == []
    assert room.start("ann", None, T0 + THROTTLE)
    assert users(room, T0 + THROTTLE) == ["ann"]


def test_a_stop_of_typing_is_published_once() -> None:
    room = typists()
    room.start("ann", None, T0)
    assert room.stop("ann", T0 + 1)
    assert not room.stop("ann", T0 + 2)


def test_a_stop_after_the_typing_expired_is_not_published() -> None:
    room = typists()
    room.start("ann", None, T0)
    assert not room.stop("ann", T0 + TTL)


def test_a_stop_at_the_last_millisecond_is_published() -> None:
    room = typists()
    room.start("ann", None, T0)
    assert room.stop("ann", T0 + TTL - 1)


def test_a_stop_of_a_user_who_never_typed_is_not_published() -> None:
    assert not typists().stop("ann", T0)


def test_the_throttle_of_one_user_does_not_hold_up_another() -> None:
    room = typists()
    assert room.start("ann", None, T0)
    assert room.start("bob", None, T0)


def test_typers_are_listed_by_their_start() -> None:
    room = typists()
    room.start("zoe", None, T0)
    room.start("ann", None, T0 + 1)
    assert users(room, T0 + 2) == ["zoe", "ann"]


def test_a_room_is_empty_once_nothing_of_it_matters() -> None:
    room = typists()
    room.start("ann", None, T0)
    room.stop("ann", T0)
    assert room.prune(T0 + THROTTLE - 1)
    assert room.prune(T0 + TTL - 1)
    assert not room.prune(T0 + TTL)


def test_pruning_keeps_the_throttle_where_it_is_the_longer() -> None:
    room = TypingUsers(ttl=1_000, throttle=3_000)
    room.start("ann", None, T0)
    assert room.prune(T0 + 2_999)
    assert not room.start("ann", None, T0 + 2_999)
    assert not room.prune(T0 + 3_000)


steps = st.lists(
    st.tuples(st.sampled_from(["start", "stop", "prune"]), st.sampled_from(["ann", "bob"]), st.integers(0, 3_000)),
    max_size=30,
)


@settings(deadline=None)
@given(steps)
def test_any_history_agrees_with_the_list_of_starts_and_stops(history: list[tuple[str, str, int]]) -> None:
    room, now = typists(), T0
    let_through: dict[str, int] = {}  # user → the last start that was admitted
    stopped: set[str] = set()  # users who stopped since then
    for verb, user, step in history:
        now += step
        started = let_through.get(user, -TTL)
        typing = started + TTL > now and user not in stopped
        if verb == "start":
            assert room.start(user, None, now) == (now - started >= THROTTLE)
            if now - started >= THROTTLE:
                let_through[user] = now
                stopped.discard(user)
        elif verb == "stop":
            assert room.stop(user, now) == typing
            if typing:
                stopped.add(user)
        else:
            room.prune(now)
        expected = {user: at + TTL - now for user, at in let_through.items() if at + TTL > now and user not in stopped}
        assert {typist.user: typist.remaining for typist in room.active(now)} == expected


def test_a_clock_that_is_set_forward_changes_nothing_of_what_remains() -> None:
    room = typists()
    room.start("ann", "Ann", T0)
    room.shift(60_000)
    assert room.active(T0 + 60_000) == [("ann", "Ann", TTL)]
    assert not room.start("ann", "Ann", T0 + 60_000 + THROTTLE - 1)
    assert room.start("ann", "Ann", T0 + 60_000 + THROTTLE)
