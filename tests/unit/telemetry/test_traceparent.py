"""Parsing of the `traceparent` header."""

from __future__ import annotations

import asyncio

import pytest

from greendot.telemetry.traceparent import Trace, current, enter, leave, read

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_traceparent_is_read_and_written() -> None:
    trace = read(f"00-{TRACE}-{SPAN}-01")
    assert trace == Trace(TRACE, SPAN, 1)
    assert trace.is_sampled
    assert trace.parent == f"00-{TRACE}-{SPAN}-01"
    assert read(f"00-{TRACE}-{SPAN}-00") == Trace(TRACE, SPAN, 0)
    assert read(f"00-{TRACE}-{SPAN}-ff") == Trace(TRACE, SPAN, 0xFF)


def test_a_trace_is_sampled_if_its_origin_set_the_flag() -> None:
    assert Trace(TRACE, SPAN, 0xFF).is_sampled is True
    assert Trace(TRACE, SPAN, 0xFE).is_sampled is False
    assert Trace(TRACE, SPAN).flags == 0
    assert Trace(TRACE, SPAN).parent == f"00-{TRACE}-{SPAN}-00"


def test_one_of_a_later_version_is_read_as_far_as_this_one_goes() -> None:
    assert read(f"cc-{TRACE}-{SPAN}-01-what-the-future-brings") == Trace(TRACE, SPAN, 1)
    assert Trace(TRACE, SPAN, 0xFF).parent.endswith("-01"), "unknown flags must not be passed on"


def test_a_traceparent_of_a_later_version_has_a_maximum_length() -> None:
    longest = f"cc-{TRACE}-{SPAN}-01-".ljust(128, "x")
    assert read(longest) == Trace(TRACE, SPAN, 1)
    assert read(longest + "x") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 128}",
        None,
        7,
        ["00"],
        {"a": 1},
    ],
)
def test_whatever_else_it_is_it_is_none(text: object) -> None:
    assert read(text) is None


async def test_tasks_are_in_the_course_of_what_began_them() -> None:
    async def asked() -> Trace | None:
        await asyncio.sleep(0)
        return current()

    before = enter(Trace(TRACE, SPAN))
    assert current() == Trace(TRACE, SPAN)
    within = asyncio.create_task(asked())
    leave(before)
    assert current() is None
    assert await within == Trace(TRACE, SPAN)
