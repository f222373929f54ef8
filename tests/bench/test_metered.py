"""Server without metrics, and its comparison with the normal one."""

from __future__ import annotations

import ast
import sys

import metered
import unmetered

SOURCE = """
class Hub:
    def send(self, frame):
        self._metrics.sends += 1
        if frame:
            self.counts.bytes += self.write(frame)
            self.lag.observe(1.0)
        self.seen += 1
        return frame
"""


def test_what_counts_is_taken_out_and_what_is_done_meanwhile_stays() -> None:
    plain = ast.unparse(unmetered.Uncounted().visit(ast.parse(SOURCE)))
    assert "sends" not in plain
    assert "bytes" not in plain
    assert "observe" not in plain
    assert "self.write(frame)" in plain
    assert "self.seen += 1" in plain


def test_the_hot_path_has_something_to_take_out() -> None:
    unmetered.taken_out.clear()
    for module in ("node.hub", "connect.dispatch", "app.node", "engine.redis.bus"):
        spec = unmetered.Finder().find_spec(f"greendot.{module}", _folder(module))
        assert spec is not None
        assert spec.loader is not None
        spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
    assert {"self._metrics.realtime_socket_send_total += sends", "self.counts.published += 1"} <= {*unmetered.taken_out}


def _folder(module: str) -> list[str]:
    package = __import__(f"greendot.{module.rpartition('.')[0]}", fromlist=["_"])
    return [*package.__path__]


def test_the_quietest_turns_are_compared() -> None:
    on = sorted(51.0 * (3.0 if number % 3 else 1.0) for number in range(20))
    off = sorted(50.0 * (3.0 if number % 3 else 1.0) for number in range(20))
    row = metered.row(on, off)
    assert (row.median, row.verdict) == ("0.980", "met")


async def test_both_ways_lead_to_the_sockets_and_what_was_loaded_before_is_there_again() -> None:
    """Only a whole run of bench/metered.py can compare the speeds: two turns on a busy machine prove nothing."""
    before = sys.modules["greendot.telemetry.metrics"]
    on, off = await metered.measured(2)  # fails if a listener misses a message
    assert (len(on), len(off)) == (2, 2)
    assert min(*on, *off) > 0
    assert sys.modules["greendot.telemetry.metrics"] is before
