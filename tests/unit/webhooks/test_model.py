"""Webhook decisions: meaning of a response, retry times, and size of a request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.webhooks.model import LONGEST_PAUSE_S, MOST_BYTES, batches, pause_s, verdict


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_two_hundred_is_taken(status: int) -> None:
    assert verdict(status, None).outcome == "taken"


def test_gone_stops_the_hook() -> None:
    assert verdict(410, "5").outcome == "gone"


@pytest.mark.parametrize("status", [100, 301, 302, 307, 308, 400, 401, 403, 404, 409, 429, 500, 502, 503, 599])
def test_all_else_is_tried_again(status: int) -> None:
    found = verdict(status, None)
    assert found.outcome == "failed"
    assert str(status) in found.reason


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *(("7", 7), (" 7 ", 7), ("0", 0), ("99999999999999999999", LONGEST_PAUSE_S), (None, 0), ("", 0), ("-3", 0)),
        *(("Wed, 21 Oct 2026 07:28:00 GMT", 0), ("1e9", 0), ("٣", 0), ("nan", 0)),
    ],
)
def test_how_long_the_app_asks_to_wait(header: str | None, seconds: float) -> None:
    assert verdict(503, header).wait_s == seconds


def test_pauses_double_from_a_second_to_a_quarter_of_an_hour_and_go_on_for_ever() -> None:
    assert [pause_s(failures, 1) for failures in (1, 2, 3, 10, 11, 12)] == [1, 2, 4, 512, 900, 900]
    assert pause_s(10**9, 1) == 900
    assert pause_s(1, 0) == 0.5
    assert pause_s(1, 0.5, wait_s=30) == 30


@given(st.lists(st.integers(0, 2 * MOST_BYTES)), st.integers(1, 20))
def test_batches_keep_the_order_and_stay_within_bounds(sizes: list[int], most: int) -> None:
    found = [*batches(((item, size) for item, size in enumerate(sizes)), most)]
    assert [item for batch in found for item in batch] == [*range(len(sizes))]
    for batch in found:
        assert 1 <= len(batch) <= most
        assert len(batch) == 1 or sum(sizes[item] for item in batch) <= MOST_BYTES


@pytest.mark.parametrize(("status", "said"), [(199, False), (300, True), (399, True), (400, False)])
def test_only_the_reason_of_a_redirect_mentions_that_redirects_are_not_followed(status: int, said: bool) -> None:
    found = verdict(status, None)
    assert (found.outcome, "redirects" in found.reason) == ("failed", said)


def test_what_is_taken_needs_no_reason_and_no_wait() -> None:
    assert verdict(200, "7") == ("taken", "", 0.0)


def test_the_pause_after_no_failure_is_that_after_one() -> None:
    assert pause_s(0, 1) == pause_s(1, 1) == 1


def test_a_batch_is_filled_to_the_last_byte_and_the_last_place() -> None:
    half = MOST_BYTES // 2
    assert [*batches([("a", half), ("b", half), ("c", 1)], 9)] == [["a", "b"], ["c"]]
    assert [*batches([("a", 1), ("b", 1), ("c", 1)], 2)] == [["a", "b"], ["c"]]
    assert [*batches([("a", MOST_BYTES + 1), ("b", MOST_BYTES), ("c", 0)], 9)] == [["a"], ["b", "c"]]
