"""Floods of the dashboard's listener by sockets without a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.processes import running
from greendot.admin.socket import MOST_PENDING
from greendot.testing import WireClient
from hostile.probe import metric, probing

KEY = "the operator's own key, long enough to be"
MORE = 64  # sockets beyond the limit of pending ones
OPERATORS = 16


async def sign_in(port: int) -> WireClient:
    client = await WireClient.connect(port, "/admin/live")
    client.send(type="hello", key=KEY)
    client.welcome = (await client.receive("welcome"))["data"]
    return client


@pytest.mark.alone
@pytest.mark.parametrize("guess", [None, "a wrong key"], ids=["silent", "guessing"])
async def test_sockets_without_a_key_lock_no_operator_out(tmp_path: Path, guess: str | None) -> None:
    async with running(tmp_path, GREENDOT_ADMIN_ENABLED="true", GREENDOT_ADMIN_KEY=KEY) as server:
        strangers: list[WireClient] = []
        operators: list[WireClient] = []
        async with probing(server) as probe:
            for number in range(MOST_PENDING + MORE):
                strangers.append(await WireClient.connect(server.port, "/admin/live"))
                if guess is not None:
                    strangers[-1].send(type="hello", key=guess)
                if number >= MOST_PENDING + MORE - OPERATORS:  # during the flood
                    operators.append(await sign_in(server.port))
        probe.noticed_nothing()
        assert all(operator.welcome["every"] for operator in operators)
        closes = [await stranger.closed() for stranger in strangers[:MORE]]
        # Each was displaced, or refused for its key before that.
        assert {close.code for close in closes} <= ({4003} if guess is None else {4003, 4500})
        assert await metric(server, "dashboard_refused_total") >= MORE
        for client in (*strangers, *operators):
            await client.end()
