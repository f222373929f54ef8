"""Small storms: the promises hold, as far as a shared machine can show.

`make storms` runs the full ones, with the promised times. e2e/test_overload.py tests the overload levels of a flooded
node.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from storms import RECOVERY_S, StormBench, compile_storm

pytestmark = [pytest.mark.alone, pytest.mark.timeout(170)]


@pytest.fixture(scope="module")
def storms(tmp_path_factory: pytest.TempPathFactory) -> StormBench:
    folder: Path = tmp_path_factory.mktemp("storms")
    compile_storm(folder)
    # Not pinned: tests share the machine with others.
    bench = StormBench([sys.executable, "-m", "greendot", "serve"], folder, folder, (None, None))
    bench.mint_tokens(1_020)
    return bench


def test_a_thousand_clients_cut_off_at_once_reconnect_and_watchers_see_no_change(storms: StormBench) -> None:
    few = {"GREENDOT_ADMISSION_HELLOS_PER_S": "1000", "GREENDOT_ADMISSION_WAITING": "50"}
    figures = storms.returning(1_000, 50, "--calm", 0.5, "--after", 1, **few).figures
    assert figures["back"] == figures["resumed"] == 1_000, figures
    assert figures["refused"] > 0, figures  # refused clients have reconnected after their retry time
    assert figures["watchers_told"] == 0, figures
    assert figures["probe_p99_ms"] < 1_000 * (1 + figures["waited_s"]), figures
    assert figures["memory_most"] <= 1.5 * figures["memory_before"], figures
    assert sum(figures["reads"].values()) <= 500, figures  # each client alone would cause four


def test_a_node_that_is_flooded_sheds_signals_keeps_every_record_and_recovers(storms: StormBench) -> None:
    storm = storms.flood(200, 2, "--first", 8_000)
    del storm.promises["normal again within 5 s"]
    assert storm.held, (storm.promises, storm.figures)
    assert storm.figures["level_calm_s"] < RECOVERY_S, storm.figures
