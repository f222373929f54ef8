"""Shared parts of all measurements: the plan, the programs, and the pipes to them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt

from progress import say as say
from serverd import Access, Cores, Server, Trouble, end, greendot, spawn

LOAD_WITHIN_S = 90
SETTLE_S = 2  # after the last connection, so that the work of connecting does not count as idle time


HERE = Path(__file__).resolve().parent


def sources(program: str) -> list[Path]:
    """Return the C sources of a generator, with the shared ones."""
    return sorted([*(HERE / program).glob("*.c"), *(HERE / "wire").glob("*.c")])


@dataclass(frozen=True)
class Plan:
    """Durations and numbers of rounds. `limit_s` bounds a whole run."""

    # Peers:
    rounds: int = 5  # maximum; two at least, and more while there is time
    rounds_s: float = 260
    warmup_s: float = 0.3
    seconds: float = 1
    latency_s: float = 1.5
    subscribers: int = 1_000
    in_flight: tuple[int, ...] = (1, 16, 256)
    patience_s: float = 6  # for all messages in flight; a slower peer is measured with fewer
    connect_rounds: int = 3
    connect_s: float = 1.5
    idle_connections: int = 15_000
    most_connections: int = 19_400
    fill_s: float = 45  # a slower server is measured with the connections that it accepted
    heartbeat_s: float = 30
    idle_s: float = 30
    # With Redis:
    node_rounds: int = 4
    stored_users: tuple[int, ...] = (10_000, 100_000)
    quiet_connections: int = 10_000
    quiet_s: float = 12
    cycles: int = 50_000
    cycling_users: int = 5_000
    read_rounds: int = 100
    flood_messages: int = 500_000
    delivery_s: float = 4
    reaped: tuple[int, int] = (100_000, 1_000_000)  # sessions of the dead node, users in all
    restored_connections: int = 5_000
    worker_rounds: int = 2
    worker_s: float = 2
    # Records:
    record_rounds: int = 2
    record_s: float = 2
    # Security:
    verify_rounds: int = 5
    verify_s: float = 0.2  # of CPU time, for each algorithm
    guard_rounds: int = 4
    guard_s: float = 1
    limit_s: int = 840

    @property
    def users(self) -> int:
        return max(self.most_connections, self.quiet_connections, self.restored_connections)


FULL = Plan()
QUICK = Plan(
    rounds=1, rounds_s=45, warmup_s=0.2, seconds=0.5, latency_s=0.8, patience_s=1.5, connect_rounds=1, connect_s=0.7,
    idle_connections=1_000, most_connections=1_000, fill_s=4, heartbeat_s=2, idle_s=2,
    node_rounds=1, stored_users=(10_000,), quiet_connections=2_000, quiet_s=3, cycles=10_000, cycling_users=2_000,
    read_rounds=50, flood_messages=200_000, delivery_s=1.5, reaped=(10_000, 100_000), restored_connections=1_000,
    worker_rounds=1, worker_s=0.7, record_rounds=1, record_s=0.7, verify_rounds=2, verify_s=0.1,
    guard_rounds=2, guard_s=0.5,
    limit_s=110,
)  # fmt: skip


@dataclass
class Rounds:
    """Values of one figure in several rounds, with the share of a core that the server used."""

    values: list[float] = field(default_factory=list)
    server_cpu: list[float] = field(default_factory=list)

    def add(self, value: float, server_cpu: float) -> None:
        self.values.append(value)
        self.server_cpu.append(server_cpu)


class Bench:
    """Shared resources of a run: programs, cores, tokens, a working folder."""

    def __init__(self, command: list[str], build: Path, folder: Path, cores: tuple[int | None, int | None]) -> None:
        self.command = command
        self.build = build
        self.folder = folder
        self.server_core, self.load_core = cores
        self.access = Access()
        self._tokens = folder / "tokens"
        self._servers = 0

    def mint_tokens(self, users: int) -> None:
        claims = {"exp": int(time.time()) + 3600}
        secret = self.access.auth_secret
        lines = (jwt.encode(claims | {"sub": f"u{n}"}, secret, algorithm="HS256") for n in range(users))
        self._tokens.write_text("\n".join(lines) + "\n")

    def greendot(self, **how: Any) -> AbstractContextManager[Server]:
        core = how.pop("core", self.server_core)
        return greendot(self.command, self.access, self.new_folder(), core, **how)

    def new_folder(self) -> Path:
        self._servers += 1
        return self.folder / f"server{self._servers}"

    def on(self, server: Server) -> tuple[object, ...]:
        return ("--port", server.port, "--pid", server.pid, "--tokens", self._tokens)

    def load(self, *arguments: object) -> dict[str, Any]:
        with self.controlled(*arguments) as load:
            got: dict[str, Any] = json.loads(line(load))
        return got

    def load_lines(self, *arguments: object) -> tuple[list[dict[str, Any]], str]:
        """Run the load generator. Return its lines, and its error if it failed; earlier lines stay valid."""
        pipe = subprocess.PIPE
        program = spawn([self.build / "load", *arguments], self.load_core, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            said, trouble = program.communicate(timeout=LOAD_WITHIN_S)
        except subprocess.TimeoutExpired:
            return [], f"the generator did not end within {LOAD_WITHIN_S} s"
        finally:
            end(program)
        return [json.loads(text) for text in said.splitlines()], trouble.strip().removeprefix("load: ")[-300:]

    def controlled(self, *arguments: object) -> AbstractContextManager[subprocess.Popen[str]]:
        """Start the load generator with pipes."""
        return controlled([self.build / "load", *arguments], self.load_core)


@contextmanager
def controlled(command: Sequence[object], core: Cores) -> Iterator[subprocess.Popen[str]]:
    """Start a program with pipes. It ends by itself after its stdin ends."""
    pipe = subprocess.PIPE
    program = spawn(command, core, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        yield program
        program.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        raise Trouble(f"{Path(str(command[0])).name} did not end within 30 s.") from None
    finally:
        end(program)


def line(program: subprocess.Popen[str]) -> str:
    """Return the next line of a program. No timeout is needed: the programs end by themselves if they stall."""
    assert program.stdout is not None
    assert program.stderr is not None
    said = program.stdout.readline()
    if not said:
        last = program.stderr.read().strip()
        raise Trouble(f"{Path(str(program.args[0])).name} failed: {last[-2000:]}")  # type: ignore[index]
    return said


def tell(program: subprocess.Popen[str], what: str = "go") -> None:
    assert program.stdin is not None
    program.stdin.write(f"{what}\n")
    program.stdin.flush()
