"""Report of the Redis figures with their targets."""

from __future__ import annotations

from functools import singledispatch
from statistics import median

from measure import Rounds
from redis_measure import DELIVERY_RATE, READ_USERS, Cycles, Delivery, Nodes, Quiet, Reading, Reaped, Restored, Workers
from report import Row, rate, verdict

BYTES_TARGETS = {10_000: 100, 100_000: 85}  # per online user, by users; with fewer, scripts and connections weigh more
COMMANDS_TARGET = 5  # per second, for any number of idle users
MEMORY_NOISE = 0.02  # share that the allocator may vary
READ_TARGET_MS = 2
READ_RATIO_TARGET = 2  # times the duration of plain HGETs in C
READ_MANY_TARGET_MS = 50
INTAKE_TARGET = 400_000  # messages per second of a node's core
DELIVERY_TARGET_MS = 1  # the 99th percentile
REAP_TARGET_S = 2
RESTORE_BATCH = 500  # sessions per tenth of a second, the default of engine.restore_batch
WORKERS_TARGET = 1.7


@singledispatch
def rows(figures: object) -> list[Row]:
    """Return the rows of one measurement, by its type."""
    raise TypeError(figures)


@rows.register
def _memory(found: dict) -> list[Row]:
    return [
        Row(
            f"memory of Redis per online user, {users:,} users",
            f"{each:.1f} bytes",
            target=f"≤ {BYTES_TARGETS[users]} bytes" if users in BYTES_TARGETS else "",
            verdict=verdict(each <= BYTES_TARGETS[users]) if users in BYTES_TARGETS else "",
        )
        for users, each in found.items()
    ]


@rows.register
def _quiet(quiet: Quiet) -> list[Row]:
    what = f"{quiet.connections:,} idle users on one node"
    return [
        Row(
            f"{what}: commands to Redis",
            f"{quiet.commands_per_s:.2f}/s",
            target=f"≤ {COMMANDS_TARGET}/s",
            verdict=verdict(quiet.commands_per_s <= COMMANDS_TARGET),
        ),
        Row(f"{what}: with the commands inside scripts", f"{quiet.calls_per_s:.2f}/s"),
        Row(f"{what}: CPU of Redis", f"{quiet.redis_cpu:.2%} of a core"),
    ]


@rows.register
def _cycles(cycles: Cycles) -> list[Row]:
    grown = cycles.after / cycles.before - 1
    return [
        Row(
            f"{cycles.cycles:,} connects and leaves of {cycles.users:,} users: memory of Redis",
            f"{grown:+.2%}",
            f"{cycles.before / 1e6:.2f}–{cycles.after / 1e6:.2f} MB",
            target=f"≤ +{MEMORY_NOISE:.0%}",
            verdict=verdict(grown <= MEMORY_NOISE),
        )
    ]


@rows.register
def _reading(reading: Reading) -> list[Row]:
    ratios = [ours / bare for ours, bare in zip(reading.ours_ms, reading.bare_ms, strict=True)]
    return [
        _at_most("presence of 200 users", reading.ours_ms, "ms", READ_TARGET_MS),
        _at_most("200 bare HGETs by C", reading.bare_ms, "ms"),
        _at_most("presence of 200 users ÷ bare HGETs by C", ratios, "", READ_RATIO_TARGET),
        _at_most("presence of 200 users: CPU of the node per user", reading.cpu_us, "µs"),
        _at_most(f"presence of {READ_USERS:,} users", reading.many_ms, "ms", READ_MANY_TARGET_MS),
    ]


@rows.register
def _dispatcher(rounds: Rounds) -> list[Row]:
    return [rate("messages taken in per second of the node's core", rounds, "/s", INTAKE_TARGET)]


@rows.register
def _delivery(delivery: Delivery) -> list[Row]:
    what = f"from node to node at {delivery.rate:,.0f}/s"
    return [
        Row(f"{what}, median", f"{delivery.p50_ms:.2f} ms"),
        Row(
            f"{what}, 99th percentile",
            f"{delivery.p99_ms:.2f} ms",
            target=f"≤ {DELIVERY_TARGET_MS} ms at {DELIVERY_RATE:,}/s",
            verdict=verdict(delivery.p99_ms <= DELIVERY_TARGET_MS and delivery.rate >= DELIVERY_RATE * 0.99),
        ),
    ]


@rows.register
def _reaped(reaped: Reaped) -> list[Row]:
    what = f"reap of {reaped.sessions:,} sessions among {reaped.users:,} users"
    longest = f"longest {max(reaped.slow) / 1000:.1f} ms" if reaped.slow else ""
    fast = reaped.seconds <= REAP_TARGET_S
    return [
        Row(what, f"{reaped.seconds:.2f} s", target=f"≤ {REAP_TARGET_S} s", verdict=verdict(fast)),
        Row(
            "commands over 5 ms meanwhile", f"{len(reaped.slow)}", longest, target="0", verdict=verdict(not reaped.slow)
        ),
    ]


@rows.register
def _restored(restored: Restored) -> list[Row]:
    what = f"FLUSHALL under {restored.sessions:,} sessions"
    return [
        Row(f"{what}: all told again", f"{restored.seconds:.1f} s"),
        Row("verbs in the busiest 0.1 s until then", f"{restored.peak:,}", target=f"some {RESTORE_BATCH}"),
        Row("verbs in the busiest 0.1 s after, when the node compares", f"{restored.peak_after:,}"),
    ]


@rows.register
def _nodes(nodes: Nodes) -> list[Row]:
    names = {"memory": "one node, memory engine", "redis": "from one node to another, Redis engine"}
    return [rate(f"broadcast with 16 in flight: {names[which]}", r, "deliveries/s") for which, r in nodes.rates.items()]


@rows.register
def _workers(workers: Workers) -> list[Row]:
    found = [
        rate(f"broadcast by {count} worker{'s' * (count > 1)}, all on the same cores", rounds, "deliveries/s")
        for count, rounds in workers.rates.items()
    ]
    found += [
        _at_most(f"broadcast by {count} worker{'s' * (count > 1)}: CPU per million deliveries", costs, "s")
        for count, costs in workers.cost.items()
    ]
    gain = [2 * one / two for one, two in zip(workers.cost[1], workers.cost[2], strict=True)]
    found.append(
        Row(
            "two workers ÷ one, by CPU per delivery",
            f"{median(gain):.2f}",
            f"{min(gain):.2f}–{max(gain):.2f}",
            target=f"≥ {WORKERS_TARGET}",
            verdict=verdict(median(gain) >= WORKERS_TARGET),
        )
    )
    return found


def _at_most(figure: str, values: list[float], unit: str, target: float | None = None) -> Row:
    gap = " " if unit else ""
    return Row(
        figure,
        f"{median(values):.2f}{gap}{unit}",
        f"{min(values):.2f}–{max(values):.2f}",
        target="" if target is None else f"≤ {target}{gap}{unit}",
        verdict="" if target is None else verdict(median(values) <= target),
    )
