"""Redis server of the benchmark, configured as docs/redis-keys.md recommends, and its statistics."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from serverd import READY_WITHIN_S, Trouble, end, free_port, spawn

SETTINGS = {
    "bind": "127.0.0.1",
    "save": "",
    "hash-max-listpack-value": "256",
    "latency-tracking": "no",
    "client-output-buffer-limit": "pubsub 1gb 1gb 60",  # a flood is counted until its end and must not be cut off
    "slowlog-log-slower-than": "5000",
}


@dataclass(frozen=True)
class Redis:
    """Running Redis server. The driver uses `client`; its commands count too."""

    port: int
    pid: int
    client: redis.Redis

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def info(self, section: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.info(section)
        return found

    def memory(self) -> int:
        """Return the used memory. Redis frees grown client buffers within some seconds."""
        self.client.slowlog_reset()  # frees up to 128 commands that a busy machine made slow
        self.client.memory_purge()
        return int(self.info("memory")["used_memory"])

    def calls(self) -> dict[str, int]:
        """Return the number of calls of each command, including calls inside scripts."""
        return {name.removeprefix("cmdstat_"): int(one["calls"]) for name, one in self.info("commandstats").items()}

    def interruptions(self) -> int:
        """Return the number of involuntary context switches of Redis."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("nonvoluntary_ctxt_switches:")[2].split()[0])

    @contextmanager
    def monitored(self, log: Path) -> Iterator[None]:
        """Write every command to `log` while the context is open. This costs Redis time."""
        with log.open("w") as output:
            program = spawn(["redis-cli", "-p", self.port, "MONITOR"], None, stdin=subprocess.DEVNULL, stdout=output)
        try:
            yield
        finally:
            end(program)

    def cpu_s(self) -> float:
        used = self.info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


@contextmanager
def running_redis(folder: Path, core: int | None) -> Iterator[Redis]:
    """Start an empty server in `folder`. It is stopped at the end."""
    folder.mkdir()
    port = free_port()
    flags = [word for name, value in SETTINGS.items() for word in (f"--{name}", *(value.split() or [""]))]
    with (folder / "redis.log").open("w") as log:
        command = ["redis-server", "--port", port, "--dir", folder, *flags]
        process = spawn(command, core, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    client = redis.Redis(port=port, socket_timeout=60)
    try:
        _await_answer(process, client, folder / "redis.log")
        yield Redis(port, process.pid, client)
    finally:
        client.close()
        end(process)


def _await_answer(process: subprocess.Popen[str], client: redis.Redis, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            client.ping()
            return
        except redis.RedisError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"redis-server did not start:\n{log.read_text(errors='replace')[-1000:]}") from None
            time.sleep(0.05)
