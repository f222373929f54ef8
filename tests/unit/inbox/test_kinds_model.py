"""Promise of a notification kind, and the times of redelivery."""

from __future__ import annotations

import pytest

from greendot.inbox.kinds_model import RETRIED_S, TIMES, Kinds, NotificationKind, Promise, wait_s


def test_a_kind_without_settings_is_durable_and_published_in_full() -> None:
    kinds = Kinds({"alarm": NotificationKind("acknowledged", "hint")})
    assert kinds.of("alarm") == ("acknowledged", "hint")
    assert kinds.of("Alarm") == kinds.of("") == ("durable", "full")


@pytest.mark.parametrize(
    ("promise", "is_kept", "wants_ack"),
    [
        ("ephemeral", False, False),
        ("recomputable", False, False),
        ("durable", True, False),
        ("acknowledged", True, True),
    ],
)
def test_what_a_promise_means(promise: Promise, is_kept: bool, wants_ack: bool) -> None:
    assert (NotificationKind(promise).is_kept, NotificationKind(promise).wants_ack) == (is_kept, wants_ack)


def test_waits_double_up_to_a_minute() -> None:
    assert [wait_s(times) for times in range(TIMES + 1)] == [5, 10, 20, 40] + [60] * 7


def test_it_is_given_up_when_the_last_wait_is_over() -> None:
    assert sum(wait_s(times) for times in range(TIMES)) + wait_s(TIMES) == RETRIED_S
