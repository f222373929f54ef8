"""Imports of a server: only the modules that its settings need, and all before it is ready."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from e2e.processes import running

NOT_ASKED_FOR = (
    *("greendot.engine.redis.engine", "hiredis", "redis"),
    *("greendot.store.postgres", "asyncpg"),
    *("greendot.transport.http_client", "greendot.transport.http2_client", "httpcore2", "httpx2", "h11", "h2", "hpack"),
    *(
        "greendot.webhooks.service",
        "greendot.webhooks.hook",
        "greendot.app_outbox",
        "greendot.app.push",
        "greendot.push.providers.apns",
        "greendot.push.providers.webpush",
    ),
    *("greendot.admin.dashboard", "greendot.admin.socket", "greendot.admin.actions", "greendot.admin.lookup"),
    *("greendot.compat.pusher", "greendot.compat.centrifuge"),
    *("greendot.ops.doctor", "greendot.ops.backup", "greendot.client", "greendot.testing"),
    *("structlog", "rich", "opentelemetry", "prometheus_client", "multiprocessing"),
)
MOST = 318  # Greendot's own modules; all of them are 594


async def loaded(folder: Path, *flags: str) -> tuple[list[str], list[str]]:
    """Return the modules a server loads until it is ready, and modules it loads later."""
    async with running(folder, *flags, PYTHONPROFILEIMPORTTIME="1") as server:
        assert (await server.ask("PUT", "/v1/rooms/lobby", {"open": True})).status < 300
        async with await server.client("zoe") as zoe:
            await zoe.request(type="room.join", room="lobby")
            await zoe.request(type="room.send", room="lobby", body={"text": "hi"})
            await zoe.request(type="watch", users=["ann"])
            await zoe.request(type="device.register", provider="apns", token="ab" * 32)
        assert (await server.ask("GET", "/v1/rooms/lobby/messages")).status == 200
        assert (await server.ask("GET", "/v1/nowhere")).status == 404
        server.signal(signal.SIGTERM)
        said = (await server.ended()).err
    start, _, use = said.partition('"event": "node.started"')
    assert "Stopping" in use, said
    use = use.partition("Stopping")[0]
    found = [re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", part, re.MULTILINE) for part in (start, use)]
    return found[0], found[1]


async def test_a_small_server_loads_only_what_it_uses_and_nothing_while_it_is_used(tmp_path: Path) -> None:
    at_start, in_use = await loaded(tmp_path)
    assert {"greendot.engine.memory", "greendot.store.sqlite", "starlette"} <= {*at_start}
    assert [name for name in at_start if any(f"{name}.".startswith(f"{other}.") for other in NOT_ASKED_FOR)] == []
    assert len([name for name in at_start if name.startswith("greendot")]) <= MOST
    assert in_use == []
