"""Floods of harmful JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.processes import running
from greendot.testing.wire import TEXT, make_frame
from hostile.flood import Flood, flood, hello, upgrade
from hostile.probe import FLOOD_S, metric, probing

NESTED = {
    "arrays": b'{"type":"room.send","room":"lobby","body":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "objects": b'{"type":"?","x":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001,
}


@pytest.mark.alone
@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED.keys())
async def test_deep_json_is_refused_and_its_sender_closed(tmp_path: Path, text: bytes) -> None:
    async with running(tmp_path) as server:
        openings = [[upgrade(), hello(server.token(f"mallory{number}"))] for number in range(10)]
        refused = await metric(server, "realtime_commands_refused_total")
        async with probing(server) as probe:
            outcomes = await flood(Flood(server.port, openings, make_frame(TEXT, text), FLOOD_S, ends=10))
        probe.noticed_nothing()
        assert {outcome.close_code for outcome in outcomes} == {4502}
        assert await metric(server, "realtime_commands_refused_total") == refused + 3 * len(outcomes)
