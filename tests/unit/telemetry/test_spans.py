"""Recording and sampling of spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from greendot.errors import Refused
from greendot.protocol.codes import Err
from greendot.telemetry import spans
from greendot.telemetry.spans import ROOT, Course, began, parent, record_with, span
from greendot.telemetry.traceparent import Trace, current

SAMPLED, UNSAMPLED = Trace("a" * 32, "b" * 16, 1), Trace("a" * 32, "b" * 16, 0)


class Kept:
    def __init__(self, name: str, above: Trace, number: int) -> None:
        self.name = name
        self.above = above
        self.trace = Trace(above.trace_id or "c" * 32, f"{number:016x}", 1)
        self.error: BaseException | None = None
        self.ends = 0

    def failed(self, error: BaseException) -> None:
        self.error = error

    def end(self) -> None:
        self.ends += 1


class Keeper:
    def __init__(self, share: float = 0.0) -> None:
        self.share = share
        self.spans: list[Kept] = []

    def begin(self, name: str, parent: Trace, fields: Mapping[str, object]) -> Kept:
        self.spans.append(Kept(name, parent, len(self.spans) + 1))
        return self.spans[-1]


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    found = Keeper()
    record_with(found)
    try:
        yield found
    finally:
        record_with(None)


def test_spans_within_spans_are_their_children(keeper: Keeper) -> None:
    with span("outer", SAMPLED):
        with span("inner"):
            assert parent() == f"00-{'a' * 32}-{2:016x}-01"
        assert parent() == f"00-{'a' * 32}-{1:016x}-01"
    outer, inner = keeper.spans
    assert (outer.above, inner.above) == (SAMPLED, outer.trace)
    assert [kept.ends for kept in keeper.spans] == [1, 1]
    assert current() is None


def test_what_is_not_sampled_is_passed_on_and_not_recorded(keeper: Keeper) -> None:
    with span("one", UNSAMPLED):
        assert parent() == UNSAMPLED.parent
    with span("none"):
        assert parent() is None
    assert keeper.spans == []


def test_without_a_recorder_a_trace_is_passed_on_all_the_same() -> None:
    with span("one", SAMPLED):
        assert parent() == SAMPLED.parent
    assert began(SAMPLED.parent) == SAMPLED
    assert began("nonsense") is began() is None


@pytest.mark.parametrize(("share", "found"), [(0.0, None), (1.0, ROOT)])
def test_a_share_of_what_comes_without_a_trace_gets_one(keeper: Keeper, share: float, found: Trace | None) -> None:
    keeper.share = share
    record_with(keeper)
    assert spans.sampling is bool(share)
    assert began() == found
    assert began("nonsense") == found
    assert began(UNSAMPLED.parent) == UNSAMPLED, "the caller's sampling decision must be kept"


async def test_a_course_is_over_when_its_work_is(keeper: Keeper) -> None:
    told: list[str] = []

    async def work() -> None:
        assert keeper.spans[0].ends == 0
        raise Refused(Err.FORBIDDEN, "no")

    course = Course("command", SAMPLED, {}, told.append).enter()
    going_on = course.through(work())
    course.leave()
    assert (current(), keeper.spans[0].ends, told) == (None, 0, [])
    with pytest.raises(Refused):
        await going_on
    assert keeper.spans[0].ends == 1
    assert isinstance(keeper.spans[0].error, Refused)
    assert told == ["forbidden"]
