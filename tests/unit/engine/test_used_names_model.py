"""Names that were used, as a node remembers them."""

from __future__ import annotations

from greendot.engine.used_names_model import MOST_NAMES, UsedNames


def test_the_time_since_the_first_use_is_returned() -> None:
    used = UsedNames()
    assert used.use("t", "a", 1_000, 500) == 0
    assert used.use("t", "a", 1_000, 500) == 0
    assert used.use("t", "a", 1_300, 500) == 300
    assert used.use("t", "a", 1_499, 500) == 499


def test_a_name_is_forgotten_at_the_end_of_its_time() -> None:
    used = UsedNames()
    used.use("t", "a", 1_000, 500)
    assert used.use("t", "a", 1_500, 500) == 0
    assert used.use("t", "a", 1_600, 500) == 100
    used.use("t", "b", 2_100, 1)
    assert len(used) == 1


def test_a_name_ends_although_an_older_one_is_kept_longer() -> None:
    used = UsedNames()
    for name, keep_ms in (("long", 10_000), ("short", 10)):
        used.use("t", name, 0, keep_ms)
    assert {name: used.use("t", name, 10, 10) for name in ("short", "long")} == {"short": 0, "long": 10}


def test_tenants_have_names_of_their_own() -> None:
    used = UsedNames()
    used.use("t", "a", 0, 1_000)
    assert used.use("u", "a", 100, 1_000) == 0


def test_a_clock_that_was_set_back_gives_no_negative_time() -> None:
    used = UsedNames()
    used.use("t", "a", 1_000, 1_000)
    assert used.use("t", "a", 900, 1_000) == 0


def test_above_the_limit_the_oldest_is_forgotten() -> None:
    used = UsedNames(most=2)
    for name in ("a", "b", "c"):
        used.use("t", name, 0, 1_000)
    assert len(used) == 2
    assert used.use("t", "b", 5, 1_000) == 5
    assert used.use("t", "a", 5, 1_000) == 0
    assert MOST_NAMES >= 10_000
