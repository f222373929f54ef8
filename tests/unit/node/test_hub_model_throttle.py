from __future__ import annotations

from greendot.node.hub_model import BURST_S, WriteThrottle


def test_what_was_taken_is_paid_for_by_waiting() -> None:
    throttle = WriteThrottle(1_000, 0.0)
    assert throttle.wait_s(0.0) == 0.0
    throttle.take(1_000 + round(1_000 * BURST_S))
    assert throttle.wait_s(0.0) > 0.99
    assert throttle.wait_s(0.5) > 0.49
    assert throttle.wait_s(1.01) == 0.0


def test_what_was_not_used_is_not_kept_for_long() -> None:
    throttle = WriteThrottle(1_000, 0.0)
    assert throttle.wait_s(100.0) == 0.0
    throttle.take(round(1_000 * BURST_S) + 1)
    assert throttle.wait_s(100.0) > 0.0


def test_the_wait_is_until_one_more_may_be_taken() -> None:
    throttle = WriteThrottle(100, 0.0)
    throttle.take(round(100 * BURST_S))
    assert throttle.wait_s(0.0) == 0.01
    throttle.take(9)
    assert throttle.wait_s(0.0) == 0.1
    assert throttle.wait_s(0.0625) == 0.0375
    assert throttle.wait_s(0.125) == 0.0


def test_a_part_of_one_is_enough_to_go_on() -> None:
    throttle = WriteThrottle(100, 0.0)
    throttle.take(round(100 * BURST_S))
    assert throttle.wait_s(0.0078125) == 0.0
