"""The storms in small: what is promised of them holds, as far as a machine that does other things can show it.

The full ones are `make storms`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from storms import TOKENS, StormBench, compile_storm

pytestmark = [pytest.mark.alone, pytest.mark.timeout(170)]


@pytest.fixture
def storms(tmp_path: Path) -> StormBench:
    compile_storm(tmp_path)
    # Not pinned: tests share the machine with others.
    bench = StormBench([sys.executable, "-m", "greendot", "serve"], tmp_path, tmp_path, (None, None))
    bench.mint_tokens(TOKENS)
    return bench


def test_a_thousand_who_are_cut_off_at_once_are_back_soon_and_nobody_sees_it(storms: StormBench) -> None:
    few = {"GREENDOT_ADMISSION_HELLOS_PER_S": "1000", "GREENDOT_ADMISSION_WAITING": "50"}
    storm = storms.returning(1_000, 50, patience_s=12, **few)
    figures = storm.figures
    assert figures["back"] == figures["resumed"] == 1_000, figures
    assert figures["refused"] > 0, figures  # they came back when they were told to
    assert figures["watchers_told"] == 0, figures
    assert figures["p99_s"] < 11, figures
    assert figures["probe_p99_ms"] < 1_000, figures
    assert figures["memory_most"] <= 1.5 * figures["memory_before"], figures
    assert sum(figures["reads"].values()) <= 500, figures  # alone, each would be four


def test_a_node_that_is_flooded_sheds_signals_keeps_every_record_and_recovers(storms: StormBench) -> None:
    storm = storms.flood(200, 4)
    assert storm.held, (storm.promises, storm.figures)
