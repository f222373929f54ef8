"""Report of Greendot and its peers: targets first, then all figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from peer_measure import WITH_REDIS, Figures, Most, Values
from peer_servers import PEERS
from redis_measure import Nodes
from report import Row, grid, verdict

MEMORY_TARGET_BYTES, MEMORY_TARGET_AT = 6_000, 15_000  # per idle connection; with fewer, the fixed cost weighs more
CONNECT_RATIO_TARGETS = {"bun": 0.5, "centrifugo": 0.6}  # share of the peer's connects
CONNECT_WITH_REDIS_TARGET = 0.5  # share of Centrifugo's connects (with its memory engine)
CONNECT_TARGET = 1_500  # per second, with hello and token
DELIVERIES_TARGET = 600_000  # per second, sixteen in flight
CPU_TARGET = 0.08  # share of a core, for the heartbeats of 15,000 idle connections
NODES_TARGET = 0.6  # share of one node without Redis


@dataclass(frozen=True)
class Target:
    """Minimum ratio to a peer's deliveries per second, for a number of messages in flight."""

    in_flight: int
    peer: str
    ratio: float


TARGETS = (
    Target(1, "raw", 0.9),
    Target(1, "bun", 1),
    Target(1, "socketio", 1.5),
    Target(1, "python-socketio", 8),
    Target(1, "centrifugo", 1),
    Target(16, "bun", 1.2),
    Target(16, "socketio", 8),
    Target(16, "centrifugo", 1),
)


CONNECTS = {"bun": "Bun's upgrades", "centrifugo": "Centrifugo, with the same token"}
LABELS = {peer.name: peer.label for peer in PEERS} | {"raw": "raw C"}


def ratios(ours: Values, theirs: Values) -> list[float]:
    """Return the ratios of the rounds that both have. Rounds close in time share the load of the machine."""
    return [ours[number] / theirs[number] for number in sorted(ours) if number in theirs]


HEADINGS = ("", "median", "lowest–highest", "by the server's CPU time", "target", "")


def targets(found: Mapping[str, Figures], nodes: Nodes | None = None, others: Sequence[Row] = ()) -> str:
    """Return the table of all targets, with whether each was met. `others` are rows of the other parts."""
    ours = found["greendot"]
    rows = [_against(ours, found.get(target.peer), target) for target in TARGETS] if ours.rates else []
    if nodes is not None:
        what = "16 in flight: Redis engine between two nodes ÷ memory engine"
        rows.append(_at_least(what, nodes.ratios(), NODES_TARGET, nodes.ratios_by_cpu()))
    if ours.connects:
        rows += [_connects(ours, found, peer, least) for peer, least in CONNECT_RATIO_TARGETS.items()]
        with_redis = found.get(WITH_REDIS, Figures(WITH_REDIS, "Greendot with Redis"))
        rows.append(_connects(with_redis, found, "centrifugo", CONNECT_WITH_REDIS_TARGET))
    rows += _own(ours)
    return grid(HEADINGS, rows + [[row.figure, row.median, row.spread, "", row.target, row.verdict] for row in others])


def _against(ours: Figures, peer: Figures | None, target: Target) -> list[str]:
    k = target.in_flight
    what = f"{k} in flight: Greendot ÷ {peer.label if peer else LABELS[target.peer]}"
    if peer is None:
        return _at_least(what, [], target.ratio)
    by_cpu = ratios(
        _each(ours.rates.get(k, {}), ours.busy.get(k, {})), _each(peer.rates.get(k, {}), peer.busy.get(k, {}))
    )
    return _at_least(what, ratios(ours.rates.get(k, {}), peer.rates.get(k, {})), target.ratio, by_cpu)


def _connects(ours: Figures, found: Mapping[str, Figures], peer: str, least: float) -> list[str]:
    theirs = found.get(peer, Figures(peer, LABELS[peer]))
    by_cpu = ratios(_each(ours.connects, ours.connect_busy), _each(theirs.connects, theirs.connect_busy))
    what = f"connects/s, hello and JWT included: {ours.label} ÷ {CONNECTS[peer]}"
    return _at_least(what, ratios(ours.connects, theirs.connects), least, by_cpu)


def _each(rates: Values, busy: Values) -> Values:
    """Return the rates per second of the server's CPU time, which other programs do not affect."""
    return {number: rate / busy[number] for number, rate in rates.items() if busy[number]}


def _at_least(what: str, values: Sequence[float], target: float, by_cpu: Sequence[float] = ()) -> list[str]:
    if not values:
        return [what, "not measured", "", "", f"≥ {target:g}", ""]
    spread, cpu = f"{min(values):.2f}–{max(values):.2f}", f"{median(by_cpu):.2f}" if by_cpu else ""
    return [what, f"{median(values):.2f}", spread, cpu, f"≥ {target:g}", verdict(median(values) >= target)]


def _own(ours: Figures) -> list[list[str]]:
    rows = []
    if 16 in ours.rates:
        rows.append(_rate("16 in flight: deliveries/s", ours.rates[16], DELIVERIES_TARGET))
    if ours.connects:
        rows.append(_rate("connects/s, hello and JWT included", ours.connects, CONNECT_TARGET))
    if ours.idle:
        each, n, at_most = ours.idle.bytes_each, ours.idle.connections, f"≤ {MEMORY_TARGET_BYTES / 1000:g} KB"
        met = verdict(each <= MEMORY_TARGET_BYTES) if n >= MEMORY_TARGET_AT else "too few connections"
        rows.append([f"memory per idle connection at {n:,}", f"{each / 1000:.1f} KB", "", "", at_most, met])
        if (cpu := ours.idle.cpu) is not None:
            met = verdict(cpu <= CPU_TARGET)
            rows.append([f"CPU of {n:,} idle connections", f"{cpu:.1%} of a core", "", "", f"≤ {CPU_TARGET:.0%}", met])
    return rows


def _rate(what: str, values: Values, target: float) -> list[str]:
    middle, spread = median(values.values()), f"{min(values.values()):,.0f}–{max(values.values()):,.0f}"
    return [what, f"{middle:,.0f}", spread, "", f"≥ {target:,}", verdict(middle >= target)]


def ranked(found: Mapping[str, Figures]) -> list[Figures]:
    """Sort by deliveries with 16 messages in flight, fastest first. Raw C comes last, because it is not a server."""
    return sorted(found.values(), key=lambda one: (one.name == "raw", -middle(one.rates.get(16, one.rates.get(1, {})))))


def middle(values: Values) -> float:
    return median(values.values()) if values else 0.0


def tables(found: Mapping[str, Figures]) -> list[str]:
    contenders = ranked(found)
    parts = []
    if any(one.rates for one in contenders):
        delivered = [one for one in contenders if one.name != WITH_REDIS]
        parts += [f"### Deliveries per second, 1,000 subscribers\n{_deliveries(delivered)}"]
    if any(one.latency for one in contenders):
        parts += [f"### Delivery latency at half load\n{_latencies(contenders)}"]
    if any(one.connects or one.idle for one in contenders):
        parts += [f"### Connections\n{_connections(contenders)}"]
    return parts


def _deliveries(contenders: Sequence[Figures]) -> str:
    levels = sorted({level for one in contenders for level in one.rates})
    heads = [f"{level} in flight" for level in levels]
    rows = []
    for one in contenders:
        cells = [
            _spread(one.rates.get(level, {})) or ("too slow" if one.too_slow_for(level) else "–") for level in levels
        ]
        busy = [value for level in one.busy.values() for value in level.values()]
        rows.append([one.label, *cells, f"{median(busy):.0%}" if busy else "–", f"{one.frame_bytes} B"])
    return grid(["", *heads, "server's core", "one delivery"], rows)


def _spread(values: Values) -> str:
    if not values:
        return ""
    low, high = min(values.values()), max(values.values())
    return f"{middle(values):,.0f} ({low / 1000:,.0f}–{high / 1000:,.0f} k)"


def latency(one: Figures, which: str) -> float:
    return median(got[which] for got in one.latency.values())


def _latencies(contenders: Sequence[Figures]) -> str:
    rows = [
        [one.label, f"{latency(one, 'rate') * 1000:,.0f}/s"]
        + [f"{latency(one, which):.1f} ms" for which in ("p50_ms", "p99_ms", "p999_ms")]
        for one in contenders
        if one.latency
    ]
    return grid(["", "deliveries asked for", "p50", "p99", "p99.9"], rows)


def _connections(contenders: Sequence[Figures]) -> str:
    rows = []
    for one in contenders:
        if not (one.connects or one.idle):
            continue
        idle, most = one.idle, one.most
        cpu = idle.cpu_per_10_000() if idle else None
        rows.append(
            [
                one.label,
                f"{middle(one.connects):,.0f}/s" if one.connects else "–",
                f"{idle.bytes_each / 1000:.1f} KB" if idle else "–",
                "–" if cpu is None else f"{cpu:.1%} of a core",
                _held(most) if most else "–",
            ]
        )
    at = next((f" at {one.idle.connections:,}" for one in contenders if one.idle and one.name == "greendot"), "")
    return grid(["", "connects", f"memory each{at}", "CPU per 10,000 idle", "most held"], rows)


def _held(most: Most) -> str:
    return f"{most.held:,}" if most.all_asked else f"{most.held:,} ({most.why})"


def remarks(found: Mapping[str, Figures], missing: Mapping[str, str]) -> list[str]:
    """List the missing measurements with their reasons."""
    words = [f"- {label} was not measured: {why}." for label, why in missing.items()]
    for one in found.values():
        words += [f"- {one.label}, {trouble}" for trouble in one.troubles]
        if never := one.left_out - set(one.rates):
            levels = ", ".join(map(str, sorted(never)))
            words.append(f"- {one.label} was not measured with {levels} in flight: the round would take too long.")
    return words
