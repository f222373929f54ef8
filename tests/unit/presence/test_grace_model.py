"""Grace of a session by the cause of its end, one test for each row of the table "Leaving"."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.presence.grace_model import EndCause, Graces, grace_s, shown_code
from greendot.protocol.codes import Close

GRACES = Graces(lost=30.0, clean=5.0, silent=15.0)


def grace(cause: EndCause, code: int = 0) -> float:
    return grace_s(cause, code, GRACES)


def test_a_session_that_ends_with_bye_has_no_grace() -> None:
    assert grace(EndCause.BYE, Close.NORMAL) == 0.0


@pytest.mark.parametrize("code", [Close.NORMAL, Close.GOING_AWAY])
def test_who_closes_cleanly_counts_a_few_seconds_more(code: int) -> None:
    assert grace(EndCause.CLIENT_CLOSE, code) == 5.0


def test_a_close_without_a_code_is_clean() -> None:
    assert grace(EndCause.CLIENT_CLOSE, 0) == 5.0


@pytest.mark.parametrize("code", [1006, 1011, 3000, 4000, 4999])
def test_a_client_that_closes_for_another_reason_is_expected_back(code: int) -> None:
    assert grace(EndCause.CLIENT_CLOSE, code) == 30.0


@given(st.integers(0, 4_999))
def test_a_lost_socket_counts_for_the_whole_grace_whatever_its_close_code(code: int) -> None:
    assert grace(EndCause.LOST, code) == 30.0


def test_a_client_that_fell_silent_counts_for_the_shorter_grace() -> None:
    assert grace(EndCause.SERVER_CLOSE, Close.HEARTBEAT_LOST) == 15.0


@pytest.mark.parametrize("code", [code for code in Close if 4000 <= code < 4500 and code != Close.HEARTBEAT_LOST])
def test_who_is_asked_to_come_back_is_waited_for(code: int) -> None:
    assert grace(EndCause.SERVER_CLOSE, code) == 30.0


@pytest.mark.parametrize("code", [code for code in Close if not 4000 <= code < 4500])
def test_who_is_sent_away_is_not_waited_for(code: int) -> None:
    assert grace(EndCause.SERVER_CLOSE, code) == 0.0


@given(st.sampled_from(EndCause), st.integers(0, 4_999))
def test_every_way_to_go_has_one_of_the_four_graces(cause: EndCause, code: int) -> None:
    assert grace(cause, code) in (0.0, 5.0, 15.0, 30.0)


@pytest.mark.parametrize(
    ("cause", "code", "shown"),
    [
        (EndCause.LOST, 0, 1006),
        (EndCause.CLIENT_CLOSE, 0, 1005),
        (EndCause.CLIENT_CLOSE, 1001, 1001),
        (EndCause.BYE, 1000, 1000),
        (EndCause.SERVER_CLOSE, Close.TOO_SLOW, 4001),
    ],
)
def test_an_end_is_counted_under_its_code(cause: EndCause, code: int, shown: int) -> None:
    assert shown_code(cause, code) == shown


@given(st.integers(0, 65_535))
def test_codes_that_clients_make_up_do_not_make_up_counters(code: int) -> None:
    assert shown_code(EndCause.CLIENT_CLOSE, code) in (1000, 1001, 1005)
