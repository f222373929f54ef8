"""Measurements with a Redis server: memory, commands and message rates."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_node import KEY, TENANT, frame, room, user
from greendot.engine.messages import Deliver
from greendot.engine.redis import keys
from greendot.engine.redis.bus_codec import BusCodec
from measure import SETTLE_S, Bench, Plan, Rounds, controlled, line, say, tell
from redisd import Redis, running_redis
from serverd import Cores, Trouble

NODE = Path(__file__).resolve().parent / "engine_node.py"
BUFFERS_S = 3  # time in which Redis frees the grown buffers of its clients
ROOMS = 10_000
READ_USERS = 10_000
DELIVERY_RATE = 20_000
SAMPLE_S = 0.1


@dataclass(frozen=True)
class Quiet:
    connections: int
    commands_per_s: float  # commands of clients; a script counts as one
    calls_per_s: float  # including the commands inside scripts
    redis_cpu: float  # share of a core


@dataclass(frozen=True)
class Cycles:
    cycles: int
    users: int
    before: int  # bytes, after every user was online once
    after: int


@dataclass
class Reading:
    """Milliseconds, and the ratio to plain HGETs in the same round."""

    ours_ms: list[float] = field(default_factory=list)
    bare_ms: list[float] = field(default_factory=list)
    many_ms: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)  # CPU time of the node per user


@dataclass(frozen=True)
class Delivery:
    rate: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Reaped:
    sessions: int
    users: int
    seconds: float
    slow: list[int]  # microseconds of each command that took more than 5 ms


@dataclass(frozen=True)
class Restored:
    sessions: int
    seconds: float  # from the loss until all sessions were restored
    peak: int  # verbs in the busiest 100 ms, until all sessions were restored
    peak_after: int  # the same, in the following seconds


@dataclass
class Workers:
    """Deliveries per second, and CPU seconds per million deliveries, by number of workers."""

    rates: dict[int, Rounds] = field(default_factory=dict)
    cost: dict[int, list[float]] = field(default_factory=dict)


@dataclass
class Nodes:
    """Deliveries with 16 messages in flight, by engine: `memory` on one node, `redis` from one node to another."""

    rates: dict[str, Rounds] = field(default_factory=dict)

    def ratios(self) -> list[float]:
        memory, redis = self.rates["memory"].values, self.rates["redis"].values
        return [b / a for a, b in zip(memory, redis, strict=True)]

    def ratios_by_cpu(self) -> list[float]:
        """Return the ratios of deliveries per CPU second of the delivering node."""
        each = [[rate / cpu for rate, cpu in zip(r.values, r.server_cpu, strict=True)] for r in self.rates.values()]
        memory, redis = (dict(zip(self.rates, each, strict=True))[which] for which in ("memory", "redis"))
        return [b / a for a, b in zip(memory, redis, strict=True)]


class RedisBench(Bench):
    """Bench with Redis. By default Redis runs on the server's core and its clients on the generator's core."""

    def memory(self, plan: Plan) -> dict[int, float]:
        """Measure the bytes per online user, by number of users."""
        found = {}
        for users in plan.stored_users:
            with self._redis() as redis:
                empty = redis.memory()
                with self._node("fill", redis.url, users) as node:
                    line(node)
                    time.sleep(BUFFERS_S)
                    found[users] = (redis.memory() - empty) / users
            say(f"memory: {users:,} users, {found[users]:.1f} bytes each")
        return found

    def quiet(self, plan: Plan) -> Quiet:
        """Measure the Redis commands of a node whose users only send heartbeats."""
        n, seconds, log = plan.quiet_connections, plan.quiet_s, self.folder / "monitor"
        with self._redis(self.load_core) as redis, self.greendot(engine=redis.url) as server:
            # The sweep is not part of this measurement.
            redis.client.set(keys.claim_key("", "sweep"), "bench")
            options = ("--connections", n, "--heartbeat", plan.heartbeat_s, "--seconds", seconds, "--control")
            say(f"quiet: connecting {n:,}")
            with self.controlled("idle", *self.on(server), *options) as load:
                line(load)  # "ready"
                time.sleep(SETTLE_S)
                with redis.monitored(log):
                    cpu, start = redis.cpu_s(), time.monotonic()
                    tell(load)
                    got = json.loads(line(load))
                    cpu, took = redis.cpu_s() - cpu, time.monotonic() - start
        if got["lost"] or got["acks"] < got["heartbeats"]:
            raise Trouble("Idle connections were lost or heartbeats were not answered: the figures would be invalid.")
        commands = [text for text in log.read_text().splitlines() if '"' in text and '"INFO"' not in text]
        sent = sum(" lua]" not in text for text in commands)
        found = Quiet(n, sent / took, len(commands) / took, cpu / took)
        say(f"quiet: {found.commands_per_s:.2f} commands/s, Redis {found.redis_cpu:.2%} of a core")
        return found

    def cycles(self, plan: Plan) -> Cycles:
        """Measure the memory of Redis before and after many connects and disconnects, without connected nodes."""
        with self._redis() as redis:
            before, _ = self._cycled(redis, plan.cycling_users, plan.cycling_users)
            say(f"cycles: {plan.cycling_users:,} users were online once, {before / 1e6:.2f} MB; {plan.cycles:,} cycles")
            after, took = self._cycled(redis, plan.cycling_users, plan.cycles)
        say(f"cycles: {after / 1e6:.2f} MB after {took:.0f} s")
        return Cycles(plan.cycles, plan.cycling_users, before, after)

    def _cycled(self, redis: Redis, users: int, cycles: int) -> tuple[int, float]:
        with self._node("cycle", redis.url, users, cycles) as node:
            took = json.loads(line(node))["seconds"]
        time.sleep(BUFFERS_S)
        return redis.memory(), took

    def read(self, plan: Plan) -> Reading:
        """Measure presence reads of 200 users, compared with 200 plain HGETs in C, and of 10,000 users."""
        reading = Reading()
        with self._redis() as redis, self._node("read", redis.url, READ_USERS) as node:
            line(node)
            for number in range(plan.rounds):
                first, step = random.randrange(READ_USERS), 49
                tell(node, f"{first} {step} 200 {plan.read_rounds}")
                got = json.loads(line(node))
                asked = [user((first + step * index) % READ_USERS) for index in range(200)]
                bare = self._bare_read(redis, asked, plan.read_rounds)
                tell(node, f"0 1 {READ_USERS} 5")
                many = json.loads(line(node))
                reading.ours_ms.append(got["p50_us"] / 1000)
                reading.bare_ms.append(bare / 1000)
                reading.many_ms.append(many["p50_us"] / 1000)
                reading.cpu_us.append(got["cpu_us"] / 200)
                say(
                    f"read {number + 1}/{plan.rounds}: 200 in {got['p50_us']:.0f} µs (the node's CPU "
                    f"{got['cpu_us']:.0f}), bare {bare:.0f} µs; {READ_USERS:,} in {many['p50_us'] / 1000:.1f} ms"
                )
        return reading

    def _bare_read(self, redis: Redis, users: list[str], rounds: int) -> float:
        where = [keys.user_keys("", TENANT, name) for name in users]
        counts = [int(redis.client.hget(keys.nodes_key("", p), "~buckets") or 128) for p in range(keys.PARTITIONS)]
        reads = (resp("HGET", one.buckets(counts[one.partition])[0], one.field) for one in where)
        commands = self.folder / "hgets"
        commands.write_bytes(b"%d\n" % len(users) + b"".join(reads))
        with controlled([self.build / "hget", redis.port, commands, rounds], self.load_core) as program:
            return float(json.loads(line(program))["p50_us"])

    def dispatcher(self, plan: Plan) -> Rounds:
        """Measure the messages that a node receives per second of its core, each on its own channel."""
        rounds = Rounds()
        messages, commands = BusCodec(KEY), self.folder / "publishes"
        with commands.open("wb") as file:
            for number in range(ROOMS):
                channel = keys.channel("", room(number))
                file.write(resp("PUBLISH", channel, messages.write(channel, Deliver(frame(0)))))
        with (
            self._redis(self.load_core) as redis,
            self._node("subscribe", redis.url, ROOMS, core=self.server_core) as node,
        ):
            line(node)
            for number in range(plan.rounds):
                before = self._heard(node)
                start = time.monotonic()
                flood = [self.build / "flood", redis.port, commands, ROOMS, plan.flood_messages]
                with controlled(flood, self.load_core) as program:
                    sent = json.loads(line(program))
                # The answer comes after all messages that have arrived.
                heard, cpu = 0, 0.0
                while heard < sent["reached"]:
                    got = self._heard(node)
                    heard, cpu = heard + got["heard"], got["cpu_s"] - before["cpu_s"]
                    if got["invalid"] or not got["heard"]:
                        raise Trouble(f"{heard:,} of {sent['reached']:,} messages arrived.")
                took = time.monotonic() - start
                rounds.add(heard / cpu, cpu / took)
                say(
                    f"dispatcher {number + 1}/{plan.rounds}: {heard:,} messages in {took:.2f} s, "
                    f"{cpu / heard * 1e6:.2f} µs of the node's core each (Redis took {sent['seconds']:.2f} s)"
                )
        return rounds

    def _heard(self, node: subprocess.Popen[str], what: str = "go") -> dict[str, Any]:
        tell(node, what)
        got: dict[str, Any] = json.loads(line(node))
        return got

    def delivery(self, plan: Plan) -> Delivery:
        """Measure the age of messages of another node when they arrive."""
        with (
            self._redis(self.load_core) as redis,
            self._node("subscribe", redis.url, ROOMS, core=self.server_core) as ear,
            self._node("publish", redis.url, ROOMS, DELIVERY_RATE, round(plan.delivery_s)) as mouth,
        ):
            line(ear), line(mouth)
            self._heard(ear, "ages")
            tell(mouth)
            sent = json.loads(line(mouth))
            time.sleep(0.2)
            got = self._heard(ear)
        if got["heard"] != sent["sent"]:
            raise Trouble(f"{got['heard']:,} of {sent['sent']:,} messages arrived.")
        rate = sent["sent"] / sent["seconds"]
        say(
            f"delivery: {rate:,.0f}/s, p50 {got['p50_ms']:.2f} ms, p99 {got['p99_ms']:.2f}, p99.9 {got['p99.9_ms']:.2f}"
        )
        return Delivery(rate, got["p50_ms"], got["p99_ms"])

    def reap(self, plan: Plan) -> Reaped:
        """Measure the removal of a dead node's sessions among many users."""
        sessions, users = plan.reaped
        with self._redis() as redis, self._node("reap", redis.url) as node:
            lives = json.loads(line(node))
            plant(redis, lives["one"], lives["other"], sessions, users)
            say(f"reap: {sessions:,} sessions of a node that left, among {users:,}")
            redis.client.slowlog_reset()
            before = redis.interruptions()
            tell(node)
            got = json.loads(line(node))
            interrupted = redis.interruptions() - before
            slow = [entry["duration"] for entry in redis.client.slowlog_get(128)]
        if got["sessions"] != sessions:
            raise Trouble(f"{got['sessions']:,} sessions were reaped, not {sessions:,}.")
        say(
            f"reap: {got['seconds']:.2f} s (the node's CPU {got['cpu_s']:.2f} s); commands over 5 ms, in µs: {slow}; "
            f"Redis had to leave its core {interrupted} times"
        )
        return Reaped(sessions, users, got["seconds"], slow)

    def restore(self, plan: Plan) -> Restored:
        """Measure the verbs after a FLUSHALL, until all sessions are restored."""
        n = plan.restored_connections
        with self._redis(self.load_core) as redis, self.greendot(engine=redis.url) as server:
            redis.client.set(keys.claim_key("", "sweep"), "bench")
            options = ("--connections", n, "--heartbeat", 60, "--seconds", 60, "--control")
            with self.controlled("idle", *self.on(server), *options) as load:
                line(load)  # "ready"
                time.sleep(SETTLE_S)
                found = _watch_restoring(redis, n)
        say(
            f"restore: {n:,} sessions in {found.seconds:.1f} s; verbs per {SAMPLE_S} s: at most {found.peak}, "
            f"then {found.peak_after}"
        )
        return found

    def workers(self, plan: Plan) -> Workers:
        """Measure the same load on one and on two workers, with the generator on the same cores."""
        found = Workers()
        both: Cores = None if self.server_core is None else {self.server_core, self.load_core or 0}
        for number in range(plan.worker_rounds):
            for count in (1, 2):
                with self._redis(both) as redis, self.greendot(engine=redis.url, workers=count, core=both) as server:
                    got = self.load(
                        "broadcast", *self.on(server), "--connections", plan.subscribers, "--in-flight", 16,
                        "--warmup", plan.warmup_s, "--seconds", plan.worker_s,
                    )  # fmt: skip
                rate, cost = got["deliveries_per_s"], got["server_cpu"] / got["deliveries_per_s"] * 1e6
                found.rates.setdefault(count, Rounds()).add(rate, got["server_cpu"])
                found.cost.setdefault(count, []).append(cost)
                say(
                    f"workers {number + 1}/{plan.worker_rounds}: {count}: {rate:,.0f} deliveries/s, "
                    f"{cost:.2f} s of CPU per million (generator {got['generator_cpu']:.0%} of a core)"
                )
        return found

    def nodes(self, plan: Plan) -> Nodes:
        """Measure a sender and subscribers on two nodes with Redis, compared with one node without Redis.

        The delivering node has its own core, like the single node. The other node, Redis and the generator share the
        second core, so the CPU time of the delivering node is a better measure than wall time.
        """
        found = Nodes()
        flags = (
            "--connections",
            plan.subscribers,
            "--in-flight",
            16,
            "--warmup",
            plan.warmup_s,
            "--seconds",
            plan.worker_s,
        )
        store = f"sqlite:///{self.new_folder()}.db"
        with (
            self.greendot() as single,
            self._redis(self.load_core) as redis,
            self.greendot(engine=redis.url, store=store, core=self.load_core) as near,
            self.greendot(engine=redis.url, store=store) as far,
        ):
            across = (*self.on(far), "--sender-port", near.port)
            for number in range(plan.node_rounds):
                order = {"memory": self.on(single), "redis": across}
                for which in list(order) if number % 2 == 0 else reversed(order):
                    got = self.load("broadcast", *order[which], *flags)
                    found.rates.setdefault(which, Rounds()).add(got["deliveries_per_s"], got["server_cpu"])
                    say(
                        f"nodes {number + 1}/{plan.node_rounds}: {which}: {got['deliveries_per_s']:,.0f} deliveries/s "
                        f"(server {got['server_cpu']:.0%}, generator {got['generator_cpu']:.0%})"
                    )
        return found

    def _redis(self, core: Cores = -1) -> AbstractContextManager[Redis]:
        return running_redis(self.new_folder(), self.server_core if core == -1 else core)

    def _node(self, *arguments: object, core: Cores = -1) -> AbstractContextManager[subprocess.Popen[str]]:
        return controlled([sys.executable, NODE, *arguments], self.load_core if core == -1 else core)


def resp(*words: str | bytes) -> bytes:
    """Encode a command (RESP)."""
    raw = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in raw)


def plant(redis: Redis, one: str, other: str, sessions: int, users: int) -> None:
    """Write records like touch.lua, a share of them with sessions of the other node."""
    now, every = int(time.time() * 1000), users // sessions
    buckets: dict[str, dict[str, str]] = {}
    for number in range(users):
        where = keys.UserKeys("", TENANT, user(number))
        holder = other if number % every == 0 else one
        record = f"o{now:x}||User {number}|a||{holder}-{number:09d}"
        buckets.setdefault(where.buckets(keys.BUCKETS)[0], {})[where.field] = record
    with redis.client.pipeline(transaction=False) as pipeline:
        for partition in range(keys.PARTITIONS):
            pipeline.hdel(keys.nodes_key("", partition), "~buckets")  # as after growth
        for at, (bucket, records) in enumerate(buckets.items()):
            pipeline.hset(bucket, mapping=records)
            if at % 1_000 == 999:
                pipeline.execute()
        pipeline.execute()


def _watch_restoring(redis: Redis, sessions: int, within_s: float = 60, after_s: float = 12) -> Restored:
    """Delete all data, then count verbs every 100 ms until all sessions are restored, and some seconds longer."""
    claim = keys.claim_key("", "sweep")
    commands, back = _progress(redis)
    redis.client.pipeline().flushall().set(claim, "bench").execute()
    start = due = time.monotonic()
    wanted, back_at = back + sessions, None
    peak = peak_after = 0
    while back_at is None or time.monotonic() - back_at < after_s:
        due += SAMPLE_S
        time.sleep(max(0.0, due - time.monotonic()))
        before, (commands, back) = commands, _progress(redis)
        took = commands - before
        if back < wanted:
            peak = max(peak, took)
        else:
            peak_after = max(peak_after, took)
            back_at = back_at or time.monotonic()
        if time.monotonic() - start > within_s:
            raise Trouble(f"{wanted - back:,} of {sessions:,} sessions were not restored within {within_s:g} s.")
    return Restored(sessions, back_at - start, peak, peak_after)


def _progress(redis: Redis) -> tuple[int, int]:
    """Return the numbers of verbs and of restored sessions (touch is the only verb with PEXPIRE)."""
    calls = redis.calls()
    return calls["evalsha"], calls.get("pexpire", 0)
