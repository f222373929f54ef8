"""Nodes of a run: real `greendot serve` processes with their logs, and requests to them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from chaos.checker import HEARTBEAT_S, HOLD_S, LEASE_S, PERIODS, RENEW_S
from e2e.processes import API_KEY, SECRET
from redis_servers import free_port

START_S = 60.0
PERIOD_SETTINGS = {
    "GREENDOT_NODE_LEASE_S": f"{LEASE_S:g}",
    "GREENDOT_NODE_RENEW_S": f"{RENEW_S:g}",
    "GREENDOT_PRESENCE_GRACE_S": f"{PERIODS.grace_s:g}",
    "GREENDOT_PRESENCE_CLEAN_GRACE_S": f"{PERIODS.clean_s:g}",
    "GREENDOT_PRESENCE_SILENT_GRACE_S": f"{PERIODS.silent_s:g}",
    "GREENDOT_PRESENCE_HEARTBEAT_S": f"{HEARTBEAT_S:g}",
    "GREENDOT_PRESENCE_DEAD_AFTER_S": f"{PERIODS.dead_s:g}",
    "GREENDOT_PRESENCE_IDLE_S": "86400",  # no user becomes idle during a run
    "GREENDOT_TYPING_TTL_S": f"{HOLD_S:g}",
    "GREENDOT_DOOR_CONNECTIONS_PER_IP": "0",  # all clients have the same address
    "GREENDOT_LIMITS_ENABLED": "false",
    "GREENDOT_LOG_REPEAT_S": "1",  # each outage is logged, for the time to detect
    # The machine is busy with the whole cluster and its clients. Shedding is not part of the run.
    "GREENDOT_OVERLOAD_LAG_S": "10",
    "GREENDOT_OVERLOAD_BUS_LAG_S": "10",
}


class Node:
    """One node. `name` stays the same over restarts; `incarnation` is that of the running process."""

    def __init__(
        self, name: str, folder: Path, settings: dict[str, str], logged: Callable[[Node, dict[str, Any]], None]
    ) -> None:
        self.name, self.port = name, free_port()
        self.folder = folder
        self.incarnation = ""
        self.incarnations: set[str] = set()
        self._settings, self._logged = settings, logged
        self._process: subprocess.Popen[bytes] | None = None
        self.is_expected = False  # whether the process must run
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "server.log"
        self._read_to = 0

    def __str__(self) -> str:
        return self.name

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, in the main thread: it ends with the thread that starts it."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")}
        own = {
            "GREENDOT_AUTH_SECRET": SECRET,
            "GREENDOT_API_KEY": API_KEY,
            "GREENDOT_SERVER_DATA_DIR": str(self.folder),
            "PYTHONUNBUFFERED": "1",
        }
        command = [sys.executable, "-m", "greendot", "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        if guard := shutil.which("setpriv"):
            command = [guard, "--pdeathsig", "KILL", *command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=inherited | PERIOD_SETTINGS | own | self._settings,
            )
        self.is_expected = True

    def kill(self) -> None:
        self.is_expected = False
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def ready(self) -> bool:
        """Return whether the node accepts clients, and remember its incarnation."""
        try:
            status, body = await self.ask("GET", "/readyz", within_s=3.0)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            return False
        if status == 200:
            self.incarnation = msgspec.json.decode(body)["node"]
            self.incarnations.add(self.incarnation)
        return status == 200

    async def await_ready(self) -> None:
        end = time.monotonic() + START_S
        while not await self.ready():
            if not self.is_running or time.monotonic() > end:
                raise RuntimeError(f"{self.name} did not start:\n{self.log.read_text(errors='replace')[-2000:]}")
            await asyncio.sleep(0.1)

    async def ask(self, method: str, path: str, body: Any = None, within_s: float = 10.0) -> tuple[int, bytes]:
        """Send a request on its own connection; return the status and the body."""
        data = b"" if body is None else msgspec.json.encode(body)
        async with asyncio.timeout(within_s):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(
                    f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nConnection: close\r\n"
                    f"Authorization: Bearer {API_KEY}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
                    + data
                )
                head, _, rest = (await reader.read(-1)).partition(b"\r\n\r\n")
            finally:
                writer.transport.abort()
        return int(head.split(b" ", 2)[1]), rest

    def read_log(self) -> None:
        """Pass the new lines of the log on. Output that is not JSON, such as the banner, is left out."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._read_to)
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.splitlines():
            if line.startswith(b"{"):
                try:
                    self._logged(self, json.loads(line))
                except ValueError:
                    continue  # a line that a full disk has cut
            elif b"Traceback" in line:
                self._logged(self, {"level": "error", "event": "traceback", "text": line.decode(errors="replace")})
