"""Scale test: many clients of several nodes, and faults that clients must not notice.

    python bench/scale.py              100,000 clients of 8 nodes, one Redis, SQLite.
    python bench/scale.py --cluster    30,000 clients of 6 nodes, Redis Cluster with three primaries, PostgreSQL.

Each client has its own user, watches 20 users, is in a room of 50, and sends heartbeats. A client connects to the node
with the fewest connections, as the proxies in `deploy/` arrange it. The test measures memory, processor time and the
delay of presence changes. Then it kills a node, flushes Redis, and restarts all nodes in turn: the next one when all
clients of the last one are back. After each fault it waits until every client is back and every grace has passed. No
user went offline meanwhile. Every change of presence or occupancy that a client received is therefore wrong. A command
that a limit refuses is repeated after the given time, as the client libraries do. `scale/` generates the load.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import redis

from measure import controlled, line, sources, tell
from progress import say
from serverd import Access, Server, Trouble, end, free_port, spawn

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))

EACH = 16_700  # clients of one generator; a process may open 20,000 files here
IN_ROOM = 50
WATCHED = 20
HEARTBEAT_S = 30
PULSES = 2_000  # status changes to time
BACK_WITHIN_S = 240.0
FAULTS = {
    "offline": "users seen offline",
    "changed": "other changes of presence",
    "snapshot": "offline users in replies to `watch`",
    "entered": "`room.entered`",
    "left": "`room.left`",
    "fresh": "sessions lost",
    "errors": "errors",
}


@dataclass(frozen=True)
class Plan:
    """Sizes and times of a run."""

    clients: int = 100_000
    nodes: int = 8
    cluster: bool = False
    lease_s: float = 15.0
    grace_s: float = 30.0
    idle_s: float = 30.0  # for the processor time of idle clients
    pulse_s: float = 20.0  # for the status changes that are timed
    late_s: float = 5.0  # after lease and grace, for changes that come late

    @property
    def rooms(self) -> int:
        return max(1, self.clients // IN_ROOM)


@dataclass
class Results:
    """Figures by name, and the faults that clients saw after each event."""

    figures: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        return not any(any(counts.values()) for counts in self.seen.values())


class Node:
    """One server process on its own port. It can be killed and started again."""

    def __init__(self, flags: Sequence[object], environment: dict[str, str], access: Access, folder: Path) -> None:
        self.port = free_port()
        self._command = [sys.executable, "-m", "greendot", "serve", "--port", self.port, *flags]
        self._environment, self._access, self._folder = environment, access, folder
        folder.mkdir()
        self.server = self._started()

    def _started(self) -> Server:
        log = self._folder / "server.log"
        with log.open("a") as output:
            process = spawn(
                self._command, None, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        return Server(process, self.port, self._access, log)

    def await_ready(self) -> None:
        deadline = time.monotonic() + 60
        while self.server.request("GET", "/readyz") != 200:
            if self.server.process.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"A node did not start; its last output:\n{self.server.last_words()}")
            time.sleep(0.2)

    def kill(self) -> None:
        """Kill the process and start another one, as a supervisor does."""
        os.killpg(self.server.pid, signal.SIGKILL)
        self.server.process.wait()
        self.server = self._started()

    def restart(self) -> None:
        """Stop the process with a drain, and start another one."""
        self.server.process.send_signal(signal.SIGTERM)
        try:
            self.server.process.wait(180)
        except subprocess.TimeoutExpired:
            raise Trouble("A node did not stop within 180 s.") from None
        self.server = self._started()
        self.await_ready()

    def close(self) -> None:
        end(self.server.process)


class Clients:
    """All generators."""

    def __init__(self, programs: Sequence[subprocess.Popen[str]], count: int) -> None:
        self._programs = programs
        self.count = count

    def await_first(self, started: float) -> float:
        for number, program in enumerate(self._programs):
            if line(program).strip() != "ready":
                raise Trouble("A generator is out of step.")
            say(f"{number + 1} of {len(self._programs)} generators connected, {time.monotonic() - started:.0f} s")
        return time.monotonic() - started

    def reset(self) -> None:
        for program in self._programs:
            tell(program, "reset")

    def pulse(self, count: int, seconds: float) -> None:
        for program in self._programs:
            tell(program, f"pulse {max(1, count // len(self._programs))} {seconds}")

    def report(self) -> dict[str, Any]:
        """Return the sums of all counts since the last reset, and all delays."""
        total: dict[str, Any] = {}
        for program in self._programs:
            tell(program, "report")
        for program in self._programs:
            for name, value in json.loads(line(program)).items():
                total[name] = total[name] + value if name in total else value
        return total

    def await_back(self, within_s: float) -> float:
        """Wait until all clients are restored; return the seconds."""
        started = time.monotonic()
        while (ready := self.report()["ready"]) < self.count:
            took = time.monotonic() - started
            if took > within_s:
                raise Trouble(f"Only {ready:,} of {self.count:,} clients were back after {took:.0f} s.")
            time.sleep(0.5)
        return time.monotonic() - started


@contextmanager
def engine(folder: Path, plan: Plan) -> Iterator[tuple[str, list[redis.Redis]]]:
    """Start Redis, or a cluster of three primaries; yield its URL and a client of each primary."""
    from redis_servers import RedisProcess, redis_cluster

    if plan.cluster:
        with redis_cluster("redis", folder) as cluster:
            yield cluster.url, [redis.Redis(port=process.port) for process in cluster.processes]
    else:
        with RedisProcess("redis", folder) as process:
            yield f"redis://127.0.0.1:{process.port}", [redis.Redis(port=process.port)]


@contextmanager
def store(folder: Path, plan: Plan) -> Iterator[str]:
    if not plan.cluster:
        yield f"sqlite:///{folder / 'scale.db'}"
        return
    from postgresd import running_postgres

    with running_postgres(folder / "postgres", None) as postgres:
        yield postgres.url


def settings(plan: Plan, access: Access) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")}
    return environment | {
        "GREENDOT_AUTH_SECRET": access.auth_secret,
        "GREENDOT_API_KEY": access.api_key,
        "GREENDOT_DOOR_CONNECTIONS_PER_IP": "0",  # all clients have few addresses
        "GREENDOT_NODE_LEASE_S": f"{plan.lease_s:g}",
        "GREENDOT_NODE_RENEW_S": f"{plan.lease_s / 3:g}",
        "GREENDOT_PRESENCE_GRACE_S": f"{plan.grace_s:g}",
        "GREENDOT_PRESENCE_IDLE_S": "86400",  # no user becomes idle during the test
        "GREENDOT_STORE_MIGRATE": "true",
    }


def mint(folder: Path, access: Access, first: int, count: int) -> Path:
    """Write a file with the tokens of some users."""
    claims = {"iat": int(time.time()), "exp": int(time.time()) + 7_200, "rooms": ["scale*"]}
    file = folder / f"tokens{first}"
    tokens = (jwt.encode(claims | {"sub": f"u{n}"}, access.auth_secret, "HS256") for n in range(first, first + count))
    file.write_text("\n".join(tokens) + "\n")
    return file


def generators(
    folder: Path, plan: Plan, access: Access, ports: Sequence[int], program: Path, each: int = EACH
) -> list[list[object]]:
    """Return the commands of the generators, with at most `each` clients."""
    commands: list[list[object]] = []
    for first in range(0, plan.clients, each):
        count = min(each, plan.clients - first)
        flags = ["--ports", ",".join(map(str, ports)), "--tokens", mint(folder, access, first, count)]
        flags += ["--first", first, "--connections", count, "--users", plan.clients]
        commands.append([program, *flags, "--watched", WATCHED, "--rooms", plan.rooms, "--heartbeat", HEARTBEAT_S])
    return commands


@dataclass
class Cluster:
    """Nodes with connected clients, and the figures so far."""

    nodes: list[Node]
    primaries: list[redis.Redis]
    clients: Clients
    results: Results
    fresh_bytes: int  # memory of the nodes without clients
    empty_bytes: int  # memory of Redis without clients

    def cpu_s(self) -> tuple[float, float]:
        """Return the processor time of all nodes and of all primaries."""
        used = [one.info("cpu") for one in self.primaries]
        return (
            sum(node.server.cpu_s() for node in self.nodes),
            sum(float(one["used_cpu_user"]) + float(one["used_cpu_sys"]) for one in used),
        )


@contextmanager
def connected(plan: Plan, folder: Path, program: Path) -> Iterator[Cluster]:
    """Start Redis, the store and the nodes, and connect all clients. All processes end with the context."""
    results, access = Results(), Access()
    with ExitStack() as stack:
        url, primaries = stack.enter_context(engine(folder / "redis", plan))
        (folder / "store").mkdir()
        flags = ["--engine", url, "--store", stack.enter_context(store(folder / "store", plan))]
        nodes: list[Node] = []
        for number in range(plan.nodes):
            nodes.append(Node(flags, settings(plan, access), access, folder / f"node{number}"))
            stack.callback(nodes[-1].close)
            nodes[-1].await_ready()  # the first one creates the tables
        fresh = sum(node.server.rss_bytes() for node in nodes)
        empty = sum(one.info("memory")["used_memory"] for one in primaries)
        say(f"{plan.nodes} nodes are ready; {plan.rooms:,} rooms")
        for room in range(plan.rooms):
            _create(nodes[room % len(nodes)], f"scale{room}")
        commands = generators(folder, plan, access, [node.port for node in nodes], program)
        say(f"connecting {plan.clients:,} clients")
        started = time.monotonic()
        clients = Clients([stack.enter_context(controlled(command, None)) for command in commands], plan.clients)
        took = clients.await_first(started)
        results.figures["connect_s"] = round(took, 1)
        results.figures["connects_per_s"] = round(plan.clients / took)
        yield Cluster(nodes, primaries, clients, results, fresh, empty)


def run(plan: Plan, folder: Path, program: Path) -> Results:
    """Connect the clients, measure, and cause each fault."""
    with connected(plan, folder, program) as cluster:
        measure(plan, cluster)
        _faults(plan, cluster)
    return cluster.results


def _create(node: Node, room: str) -> None:
    """Create an open room. Wait if the limit of the API key is reached."""
    for _ in range(50):
        status = node.server.request("PUT", f"/v1/rooms/{room}", {"open": True})
        if status in (200, 201, 204):
            return
        time.sleep(0.2)
    raise Trouble(f"Room {room} could not be created: status {status}.")


def measure(plan: Plan, cluster: Cluster) -> None:
    """Measure memory, processor time of idle clients, and the delay and processor time of presence changes."""
    nodes, primaries, clients, results = cluster.nodes, cluster.primaries, cluster.clients, cluster.results
    time.sleep(plan.late_s)
    memory = sum(node.server.rss_bytes() for node in nodes) - cluster.fresh_bytes
    used = sum(one.info("memory")["used_memory"] for one in primaries) - cluster.empty_bytes
    kernel = _kernel_bytes()
    results.figures["node_bytes_per_client"] = round(memory / plan.clients)
    results.figures["redis_bytes_per_client"] = round(used / plan.clients)
    results.figures["kernel_bytes_per_client"] = round(kernel / plan.clients)
    say(f"memory per client: nodes {memory / plan.clients:,.0f} B, Redis {used / plan.clients:,.0f} B")
    clients.reset()
    before, start = cluster.cpu_s(), time.monotonic()
    time.sleep(plan.idle_s)
    idle = [(after - used) / (time.monotonic() - start) for after, used in zip(cluster.cpu_s(), before, strict=True)]
    results.figures["idle_cores"] = round(idle[0], 3)
    results.figures["idle_redis_cores"] = round(idle[1], 4)
    results.seen["idle"] = _seen(clients.report())
    clients.reset()
    pulses = min(PULSES, plan.clients)
    before, start = cluster.cpu_s(), time.monotonic()
    clients.pulse(pulses, plan.pulse_s)
    time.sleep(plan.pulse_s + plan.late_s)
    took = time.monotonic() - start
    used = [after - at - share * took for after, at, share in zip(cluster.cpu_s(), before, idle, strict=True)]
    results.figures["node_us_per_change"] = round(used[0] / pulses * 1e6)
    results.figures["redis_us_per_change"] = round(used[1] / pulses * 1e6)
    delays = sorted(clients.report()["delays_ms"])
    if len(delays) < pulses * WATCHED * 0.99:
        raise Trouble(f"Watchers received only {len(delays):,} of {pulses * WATCHED:,} changes.")
    results.figures["change_p50_ms"] = delays[len(delays) // 2]
    results.figures["change_p99_ms"] = delays[len(delays) * 99 // 100]
    half, most = results.figures["change_p50_ms"], results.figures["change_p99_ms"]
    say(f"a presence change reaches a watcher: p50 {half} ms, p99 {most} ms")


def _faults(plan: Plan, cluster: Cluster) -> None:
    nodes, primaries, clients, results = cluster.nodes, cluster.primaries, cluster.clients, cluster.results

    def flush() -> None:
        for primary in primaries:
            primary.flushall()

    def rolling() -> None:
        for number, node in enumerate(nodes):
            node.restart()
            took = clients.await_back(BACK_WITHIN_S)  # as an operator does before the next node
            say(f"restarted node {number + 1} of {len(nodes)}; all clients were back {took:.0f} s after it was ready")

    faults: dict[str, Callable[[], None]] = {"kill -9 of a node": nodes[-1].kill, "FLUSHALL": flush}
    faults["rolling restart"] = rolling
    for name, cause in faults.items():
        say(f"{name} …")
        clients.reset()
        cause()
        took = clients.await_back(BACK_WITHIN_S)
        time.sleep(plan.lease_s + plan.grace_s + plan.late_s)
        report = clients.report()
        results.figures[f"{name}: all back after s"] = round(took, 1)
        results.figures[f"{name}: connections lost"] = report["lost"]
        results.figures[f"{name}: clients sent away or refused"] = report["refused"]
        results.figures[f"{name}: commands repeated after a refusal"] = report["repeated"]
        results.seen[name] = _seen(report)
        say(f"{name}: all back after {took:.0f} s; seen: {results.seen[name]}")


def _seen(report: dict[str, Any]) -> dict[str, int]:
    return {name: report[name] for name in FAULTS}


def _kernel_bytes() -> int:
    """Return the memory of TCP buffers of this machine."""
    text = Path("/proc/net/sockstat").read_text()
    pages = next(row for row in text.splitlines() if row.startswith("TCP:")).split()[-1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def show(plan: Plan, results: Results) -> None:
    servers = "Redis Cluster, PostgreSQL" if plan.cluster else "Redis, SQLite"
    print(f"\n{plan.clients:,} clients, {plan.nodes} nodes, {servers}")
    for name, value in results.figures.items():
        print(f"  {name:40} {value}")
    print("\nSeen by clients, although nothing had changed:")
    for event, counts in results.seen.items():
        wrong = {FAULTS[name]: count for name, count in counts.items() if count}
        print(f"  {'nothing' if not wrong else 'FAULTS '}  {event}{': ' if wrong else ''}{wrong or ''}")


def compile_scale(folder: Path) -> Path:
    program = folder / "scale"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-o", str(program), *map(str, sources("scale"))], check=True)
    return program


def arguments() -> Plan:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, help="number of clients (100,000; with --cluster 30,000)")
    parser.add_argument("--nodes", type=int, help="number of nodes (8; with --cluster 6)")
    parser.add_argument("--cluster", action="store_true", help="Redis Cluster with three primaries, and PostgreSQL")
    options = parser.parse_args()
    clients = options.clients or (30_000 if options.cluster else 100_000)
    return Plan(clients=clients, nodes=options.nodes or (6 if options.cluster else 8), cluster=options.cluster)


def main() -> int:
    plan = arguments()
    build = HERE / "build"
    build.mkdir(exist_ok=True)
    program = compile_scale(build)
    with tempfile.TemporaryDirectory(prefix="greendot-scale-") as folder:
        results = run(plan, Path(folder), program)
    show(plan, results)
    return 0 if results.held else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        sys.exit(f"scale: {trouble}")
    except KeyboardInterrupt:
        sys.exit(130)
