"""Room of a thousand with one slow reader: other members are not affected."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from e2e.narrow import Peer
from e2e.processes import Process, running
from generator import compiled, generate
from hostile.probe import metric

OTHERS = 998  # 1,000 with the sender and the slow reader
MESSAGES = {"connections": OTHERS, "rate": 30, "body_bytes": 4_000, "warmup": 0.3, "seconds": 1.2}
PAIRS, MOST_PAIRS = 2, 10  # rounds without and with the slow reader; more only if noise hides the result
WORSE = 1.2  # allowed ratio of the 99th percentiles


@pytest.mark.alone
@pytest.mark.timeout(180)
async def test_a_reader_with_a_zero_window_in_a_room_of_1000_is_not_noticed_by_the_others(tmp_path: Path) -> None:
    program, tokens = compiled(tmp_path), tmp_path / "tokens"
    ratios: list[float] = []
    async with running(tmp_path, GREENDOT_LIMITS_ENABLED="false") as server:
        tokens.write_text("".join(f"{server.token(f'u{number}')}\n" for number in range(OTHERS + 1)))
        await server.ask("PUT", "/v1/rooms/bench", {"open": True})

        async def told() -> float:
            return float((await generate(program, "told", port=server.port, tokens=tokens, **MESSAGES))["p99_ms"])

        await told()
        while len(ratios) < PAIRS or (median(ratios) > WORSE and len(ratios) < MOST_PAIRS):
            without = await told()
            async with await Peer.connect(server.port) as slow:
                await stall(server, slow)
                ratios.append(await told() / without)
                assert await metric(server, "realtime_client_slow_closed_total") == len(ratios)
        assert median(ratios) <= WORSE, ratios


async def stall(server: Process, slow: Peer) -> None:
    """Fill the slow member's send buffer almost to its limit, so that it overflows while others listen."""
    await slow.hello(server.token("slow"))
    async with await server.client("speaker") as speaker:
        for client in (slow, speaker):
            await client.request(type="room.join", room="bench")
        slow.stop_reading()
        for _ in range(20):
            await speaker.request(type="room.send", room="bench", body="x" * 60_000)
