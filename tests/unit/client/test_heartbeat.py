from __future__ import annotations

import asyncio

from greendot.client.heartbeat import HeartbeatTimer

from .wire import run

BEAT = 0.02


@run
async def test_a_heartbeat_timer_beats_and_gives_up_when_nothing_is_received() -> None:
    silent = asyncio.Event()
    beats: list[int] = []
    pulse = HeartbeatTimer(BEAT, lambda: beats.append(1), silent.set)
    await silent.wait()
    count = len(beats)
    assert 1 <= count <= 2  # the client gives up after two and a half heartbeat intervals
    assert pulse._beating.cancelled()


@run
async def test_a_connection_that_receives_data_is_not_closed_as_silent() -> None:
    enough = asyncio.Event()
    silent: list[int] = []

    def beat() -> None:
        pulse.received()
        beats.append(1)
        if len(beats) == 8:
            enough.set()

    beats: list[int] = []
    pulse = HeartbeatTimer(BEAT, beat, lambda: silent.append(1))
    await enough.wait()
    pulse.stop()
    assert not silent


@run
async def test_a_stopped_heartbeat_timer_calls_nothing() -> None:
    said: list[int] = []
    HeartbeatTimer(0.0, lambda: said.append(1), lambda: said.append(2)).stop()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not said
