"""Floods of frames over WebSocket: others wait for nothing, memory stays, and the offender is closed and counted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from e2e.processes import running
from hostile.flood import FRAMES, flood_frames
from hostile.probe import metric, probing

FLOOD_S = 2.0
FLOOD_CLOSES_S = 12.0  # ten seconds, and a little more where the loop is late
pytestmark = pytest.mark.alone


@pytest.mark.parametrize("kind", FRAMES)
async def test_control_frames_of_strangers_close_them_4502(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path) as server:
        for strangers in (1, 10):
            closed = await metric(server, "realtime_flood_closed_total")
            async with probing(server) as probe:
                outcomes = await flood_frames(server.port, kind, FLOOD_S, strangers=strangers)
            probe.noticed_nothing()
            assert [outcome.close_code for outcome in outcomes] == [4502] * strangers
            assert await metric(server, "realtime_flood_closed_total") == closed + strangers


async def test_control_frames_of_users_are_read_slowly_and_close_them_4003(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        used_s = await metric(server, "process_cpu_seconds_total")
        async with probing(server) as probe, asyncio.TaskGroup() as group:
            floods = [
                group.create_task(flood_frames(server.port, kind, FLOOD_CLOSES_S, tokens=[server.token(f"m{n}")] * 3))
                for n, kind in enumerate(FRAMES)
            ]
        outcomes = [outcome for flood in floods for outcome in flood.result()]
        probe.noticed_nothing()
        assert [outcome.close_code for outcome in outcomes] == [4003] * 9
        assert await metric(server, "realtime_flood_closed_total") == 9
        assert await metric(server, "realtime_reading_paused_total") > 9
        # Nine floods and the probe: most of the time the server does nothing.
        assert await metric(server, "process_cpu_seconds_total") - used_s < FLOOD_CLOSES_S / 3
