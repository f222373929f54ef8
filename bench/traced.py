"""Cost of tracing for commands with and without a trace: decoded and executed without sockets, in µs each.

Run `python bench/traced.py`. To measure another version, set PYTHONPATH to its sources. A signal is decoded,
authorised, encoded and published. An activity command does little more than the dispatch.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import thread_time

from greendot.app.server import Greendot
from greendot.auth.tokens import Tokens
from greendot.clock import SystemClock
from greendot.config import load
from greendot.testing import WireClient

SECRET = "a secret for the bench, long enough for it"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
COMMANDS = {
    "activity": '{"type":"activity"}',
    "signal.send": '{"type":"signal.send","user":"bob","kind":"wave","body":{"x":1}}',
}
ROUNDS, TIMES = 30, 10_000


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = {"port": 0, "host": "127.0.0.1", "data_dir": folder}
        # The measurement blocks the loop, which must not cause overload shedding.
        quiet = {"limits": {"enabled": False}, "overload": {"lag_s": 60.0, "bus_lag_s": 60.0}}
        greendot = Greendot(load(None, {}, {"auth": {"secret": SECRET}, "server": server} | quiet))
        await greendot.start()
        try:
            await measure(greendot)
        finally:
            await greendot.stop()


async def measure(greendot: Greendot) -> None:
    node = greendot.node
    token = Tokens(SECRET).make("ann", SystemClock().now_ms(), 3600)
    client = await WireClient.connect(greendot.server.port)
    await client.hello(token)
    (connection,) = node.registry.connections.values()
    handle = node.dispatcher._handle
    traced = {f"{name}, in a trace": text[:-1] + f',"traceparent":"{TRACEPARENT}"}}' for name, text in COMMANDS.items()}
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, text in (COMMANDS | traced).items():
            began = thread_time()
            for _ in range(TIMES):
                handle(connection, text, 0.0)
            found.setdefault(name, []).append((thread_time() - began) / TIMES * 1e6)
            await asyncio.sleep(0)
    for name, times in found.items():
        print(f"{name:<28} best {min(times):6.2f} µs   median {median(times):6.2f} µs")
    await client.end()


if __name__ == "__main__":
    print(f"Python {sys.version.split()[0]}, {Path(sys.modules['greendot'].__file__ or '').parent}")
    asyncio.run(main())
