"""Format of log lines, on a terminal and elsewhere."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from greendot.ids import Id
from greendot.telemetry import log_events
from greendot.telemetry.log import log, set_node
from greendot.telemetry.log import node as current_node
from greendot.telemetry.log_output import HashedIds, LogHandler, Rendered
from greendot.telemetry.log_repeats import Repeats
from greendot.telemetry.spans import span
from greendot.telemetry.traceparent import read
from greendot.testing import ManualClock

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """Make a stream for the log lines of this test."""
    root, stream = logging.getLogger(), io.StringIO()
    before, node = root.level, current_node()
    root.setLevel(logging.DEBUG)
    set_node("aB3d")
    try:
        yield stream
    finally:
        root.setLevel(before)
        set_node(node)


def handling(stream: io.StringIO, *, is_text: bool = False, repeat_s: float = 60) -> LogHandler:
    handler = LogHandler(stream, Repeats(repeat_s))
    handler.setFormatter(Rendered(is_text=is_text))
    return handler


class handled:
    """Context in which a handler gets all log records."""

    def __init__(self, handler: logging.Handler) -> None:
        self._handler = handler

    def __enter__(self) -> None:
        logging.getLogger().addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self._handler)


def slow(session: str) -> None:
    log(log_events.CONNECTION_SLOW, session=session, user="zoe", tenant="shop")


def test_a_line_is_one_json_object_with_the_event_its_fields_and_a_sentence(output: io.StringIO) -> None:
    with handled(handling(output)), span("a test", read(f"00-{TRACE}-b7ad6b7169203331-01")):
        slow("s1")
    line = json.loads(output.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "event": "connection.slow",
        "node": "aB3d",
        "trace": TRACE,
        "session": "s1",
        "user": "zoe",
        "tenant": "shop",
        "text": "slow client: the send buffer of session s1 is half full",
    }


def test_people_read_the_sentence_and_what_is_not_in_it(output: io.StringIO) -> None:
    with handled(handling(output, is_text=True)):
        slow("s1")
    said = output.getvalue()
    assert "the send buffer of session s1 is half full [connection.slow] node=aB3d tenant=shop user=zoe" in said
    assert said.count("s1") == 1


def test_an_error_has_its_traceback_in_the_line(output: io.StringIO) -> None:
    with handled(handling(output)):
        try:
            raise ValueError("a mistake of ours")
        except ValueError as error:
            log(log_events.WORK_FAILED, error, work="a test")
    assert output.getvalue().count("\n") == 1
    assert "ValueError: a mistake of ours" in json.loads(output.getvalue())["exception"]


def test_a_log_record_of_a_library_is_an_event(output: io.StringIO) -> None:
    with handled(handling(output)):
        logging.getLogger("asyncio").warning("slow: %s", "callback")
    line = json.loads(output.getvalue())
    assert (line["event"], line["logger"], line["text"]) == ("library.said", "asyncio", "slow: callback")


@pytest.mark.parametrize("is_text", [False, True])
def test_ids_are_hashed_by_the_name_of_their_field_wherever_they_stand(output: io.StringIO, is_text: bool) -> None:
    handler = handling(output, is_text=is_text)
    handler.addFilter(HashedIds(b"k" * 32))
    with handled(handler):
        slow("s-marked")
        log(log_events.WATCHERS_SWITCHED, user="marked", tenant="marked-t", outcome="ask", watchers=3)
        log(log_events.AUDIT_ACTED, key="k", act="a", kind="user", target=Id("marked"), tenant="marked", outcome="done")
    said = output.getvalue()
    assert "marked" not in said
    assert "zoe" not in said
    assert said.count("#") >= 5
    assert "3" in said


async def test_what_comes_again_is_summed_up_by_the_loop(output: io.StringIO) -> None:
    with handled(handling(output, repeat_s=0.01)):
        for number in range(100):
            slow(f"s{number}")
        assert output.getvalue().count("\n") == 1
        while output.getvalue().count("\n") < 2:  # noqa: ASYNC110  (a timer of the loop)
            await asyncio.sleep(0.001)
    first, summed = map(json.loads, output.getvalue().splitlines())
    assert "repeated" not in first
    assert (summed["event"], summed["repeated"], summed["session"]) == ("connection.slow", 99, "s99")
    assert summed["over_s"] >= 0


def test_repeats_are_logged_at_the_end_and_not_by_a_child_process(output: io.StringIO) -> None:
    handler = handling(output)
    with handled(handler):
        for _ in range(3):
            slow("s")
        handler.sum_up(all=True)
        assert json.loads(output.getvalue().splitlines()[-1])["repeated"] == 2
        slow("s")
        handler.forget()
        handler.sum_up(all=True)
    assert output.getvalue().count("\n") == 2


def test_without_a_loop_it_is_summed_up_with_the_next_line(output: io.StringIO) -> None:
    clock = ManualClock()
    handler = LogHandler(output, Repeats(60), clock.monotonic)
    handler.setFormatter(Rendered(is_text=False))
    with handled(handler):
        for _ in range(3):
            slow("s")
        clock.advance(61)
        slow("s")
    first, summed = (json.loads(line) for line in output.getvalue().splitlines())
    assert (summed["repeated"], summed["over_s"]) == (3, 61)
    assert first["time"] <= summed["time"]
