"""Metrics on a port of their own: this port has them alone, and the port of clients has them no more."""

from __future__ import annotations

import pytest

from e2e.processes import exchange
from greendot.testing import WireClient, serving
from redis_servers import free_port


async def status(port: int, path: str, method: str = "GET") -> int:
    request = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    return (await exchange(port, request.encode())).status


async def test_a_port_of_metrics_shows_metrics_and_opens_nothing_else() -> None:
    async with serving(
        metrics={"port": free_port()}, admin={"enabled": True, "key": "an admin key of this test"}
    ) as served:
        ports = served.greendot.ports
        assert ports.metrics is not None
        own = ports.metrics.port
        assert await status(own, "/metrics") == 200
        assert await status(served.port, "/metrics") == 404
        assert await status(own, "/metrics", "POST") == 405
        for path in ("/", "/admin", "/v1/rooms", "/v1/connect", "/v1/stats", "/dev/token", "/docs", "/openapi.json"):
            assert await status(own, path) == 404, path
        for path in ("/v1/connect", "/admin/live"):
            with pytest.raises(ConnectionError, match="404"):
                await WireClient.connect(own, path)
