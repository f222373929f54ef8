"""Repeated log lines: counted, and summed up once per window."""

from __future__ import annotations

import logging
import sys

from greendot.telemetry import log_repeats
from greendot.telemetry.log import DEBUG, ERROR, WARNING, LogEvent
from greendot.telemetry.log_repeats import Repeats

SLOW = LogEvent("connection.slow", WARNING, "slow: %(session)s")
FAILED = LogEvent("work.failed", ERROR, "%(work)s failed", apart=("work",))
ACTED = LogEvent("audit.acted", WARNING, "acted", every=True)
DONE = LogEvent("command.done", DEBUG, "done")


def record(event: LogEvent | None, name: str = "asyncio", **fields: object) -> logging.LogRecord:
    level = logging.WARNING if event is None else event.level
    made = logging.LogRecord(name, level, "", 0, "words of a library", (fields,) if fields else (), None)
    if event is not None:
        made.event = event
    return made


def test_the_first_record_is_logged_and_repeats_are_counted_and_summed_up() -> None:
    counted = Repeats(60)
    assert counted.is_first(record(SLOW, session="a"), now=0)
    assert not any(counted.is_first(record(SLOW, session=f"s{n}"), now=n / 10) for n in range(1, 500))
    assert counted.over(now=59) == []
    (summed,) = counted.over(now=61)
    assert (summed.times, summed.over_s) == (499, 61)
    assert summed.record.getMessage() != "slow: a", "the sum must show the last record"
    assert summed.record.args == {"session": "s499"}


def test_while_it_goes_on_there_is_one_line_in_each_window_and_then_none() -> None:
    counted = Repeats(60)
    counted.is_first(record(SLOW), now=0)
    sums = []
    for second in range(1, 301):
        assert not counted.is_first(record(SLOW), now=second)
        sums += [summed.times for summed in counted.over(now=second)]
    assert sums == [60, 60, 60, 60, 60]
    assert counted.over(now=360) == []
    assert not counted, "an ended series must be forgotten"
    assert counted.is_first(record(SLOW), now=361)


def test_a_rare_record_is_logged_each_time() -> None:
    counted = Repeats(60)
    assert all(counted.is_first(record(SLOW), now=now) for now in range(0, 600, 60))


def failed(error: type[Exception], work: str = "a task") -> logging.LogRecord:
    made = record(FAILED, work=work)
    try:
        raise error("again")
    except error:
        made.exc_info = sys.exc_info()
    return made


def test_a_failure_that_comes_again_and_again_does_not_hide_another() -> None:
    counted = Repeats(60)
    assert counted.is_first(failed(ValueError), now=0)
    assert not counted.is_first(failed(ValueError), now=1)
    assert counted.is_first(failed(KeyError), now=2)


def test_repeats_are_distinguished_by_the_fields_that_matter() -> None:
    counted = Repeats(60)
    assert counted.is_first(record(FAILED, work="push"), now=0)
    assert counted.is_first(record(FAILED, work="webhooks"), now=0)
    assert not counted.is_first(record(FAILED, work="push"), now=1)


def test_important_and_requested_events_are_always_logged() -> None:
    counted = Repeats(60)
    for event in (ACTED, DONE):
        assert all(counted.is_first(record(event), now=0) for _ in range(5))
    assert all(Repeats(0).is_first(record(SLOW), now=0) for _ in range(5))


def test_libraries_cannot_fill_the_log_either() -> None:
    counted = Repeats(60)
    assert counted.is_first(record(None), now=0)
    assert not counted.is_first(record(None), now=0)
    assert counted.is_first(record(None, "another"), now=0)


def test_the_table_is_bounded_and_what_has_no_place_in_it_is_counted_together() -> None:
    counted = Repeats(60)
    first = sum(counted.is_first(record(FAILED, work=f"w{n}"), now=0) for n in range(10_000))
    assert first == log_repeats.MOST + 1
    assert sum(summed.times for summed in counted.over(now=61)) == 10_000 - first


def test_what_is_counted_keeps_nothing_alive() -> None:
    counted = Repeats(60)
    first, again = failed(ZeroDivisionError), failed(ZeroDivisionError)
    assert [counted.is_first(made, now=0) for made in (first, again)] == [True, False]
    assert first.exc_info is not None
    assert again.exc_info is None


def test_all_is_summed_up_at_the_end() -> None:
    counted = Repeats(60)
    for _ in range(3):
        counted.is_first(record(SLOW), now=0)
    assert [summed.times for summed in counted.over(now=1, all=True)] == [2]


def raised(deep: bool) -> logging.LogRecord:
    """Make a failure of one kind, raised in one of two places below the same line."""

    def here() -> None:
        raise ValueError("one")

    def there() -> None:
        raise ValueError("other")

    made = record(FAILED, work="sweep")
    try:
        (here if deep else there)()
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


def test_failures_are_distinguished_by_where_they_were_raised_not_by_where_they_were_caught() -> None:
    counted = Repeats(60)
    assert [counted.is_first(raised(deep), now=0) for deep in (True, False, True)] == [True, True, False]


def test_a_failure_that_was_never_raised_is_one_all_the_same() -> None:
    counted = Repeats(60)

    def made(error: Exception | None) -> logging.LogRecord:
        found = record(FAILED, work="sweep")
        found.exc_info = (type(error), error, None) if error is not None else (None, None, None)
        return found

    firsts = [counted.is_first(made(error), now=0) for error in (ValueError(), OSError(), None, ValueError(), None)]
    assert firsts == [True, True, True, False, False]


def test_a_forgotten_record_is_logged_like_a_first_one() -> None:
    counted = Repeats(60)
    counted.is_first(record(SLOW), now=0)
    counted.forget()
    assert not counted
    assert counted.is_first(record(SLOW), now=1)
