"""Screen of `greendot top`: one sample of all nodes, laid out for the size of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from greendot.cli._tables import NOTHING, duration, left, several
from greendot.cli._terminal import ScreenLine, Size

LEVELS = ("normal", "shedding", "refusing")
STYLES = {"shedding": "warn", "refusing": "alarm"}
SMALLEST = Size(20, 4)
SENT, HEARD, COMMANDS = "realtime_socket_send_total", "realtime_pubsub_received_total", "realtime_commands_total"
RATES = (
    ("connects", "ws_connections_total"),
    ("commands", COMMANDS),
    ("deliveries", SENT),
    ("bus in", HEARD),
    ("bus out", "realtime_pubsub_published_total"),
    ("dropped", "realtime_dropped_ephemeral_total"),
    ("shed", "realtime_shed_total"),
    ("slow", "realtime_client_slow_total"),
    ("refused", "realtime_commands_refused_total"),
)
LAGS = (
    ("loop lag", "realtime_loop_lag_ms", "ms"),
    ("worst", "realtime_loop_lag_worst_ms", "ms"),
    ("bus lag", "realtime_bus_lag_ms", "ms"),
    ("store", "store_latency_ms", "ms"),
    ("Redis", "redis_command_latency_us", "µs"),
)
QUEUES = (("hellos", "realtime_hellos_waiting"), ("writes", "realtime_send_backlog"))
WAITING, OLDEST = (
    "_queue_waiting",
    "_queue_oldest_s",
)  # suffixes of the gauges of a queue: its length, and the age of its oldest entry
ALARMS = frozenset({"dropped", "shed", "slow"})

Row = Mapping[str, Any]
# Orders of nodes: by a figure with the largest first, or by name.
SORTS: dict[str, Callable[[Row], Any]] = {
    "connections": lambda row: -_gauge(row, "ws_connections"),
    "deliveries": lambda row: -row.get("rates", {}).get(SENT, 0),
    "lag": lambda row: -_gauge(row, "realtime_loop_lag_ms"),
    "name": lambda row: row["node"],
}


class Shown(Struct):
    """State of the screen."""

    url: str
    welcome: dict[str, Any]  # the server's welcome: version, tenant of the key
    sample: dict[str, Any]
    at_ms: int  # time of the sample
    sort: str = "connections"
    paused: bool = False
    trouble: str = ""  # why there is no newer sample


def laid_out(shown: Shown, size: Size | None, keys: str = "") -> list[ScreenLine]:
    """Return the lines that fit; without a `size` all lines. The last line shows `keys`."""
    columns, height = size or (100_000, 100_000)
    if columns < SMALLEST.columns or height < SMALLEST.lines:
        return [ScreenLine("too small"[:columns])]
    head = _head(shown, columns)
    foot = _foot(shown, keys)
    if size is not None:
        head = head[: max(1, height // 2)]
    room = height - len(head) - len(foot)
    tables = _tables(shown)
    lines = [*head]
    for names, rows in tables:
        # Each table gets half of the free lines, so that later tables get some; at least the names and one row.
        if room < 2 or not rows:
            continue
        body = table(names, rows[: max(1, room // 2 if size else room)], columns)
        lines += body
        room -= len(body)
    if size is not None:
        lines = lines[: height - len(foot)]
        lines += [ScreenLine("")] * (height - len(foot) - len(lines))
    return [ScreenLine(line.text[:columns], line.style) for line in (*lines, *foot)]


def _head(shown: Shown, columns: int) -> list[ScreenLine]:
    sample, at = shown.sample, datetime.fromtimestamp(shown.at_ms / 1000)
    rates, worst, sums = sample["rates"], sample.get("worst", {}), sample["sums"]
    first = [f"greendot {shown.welcome['version']}", f"{at:%H:%M:%S}", *(["paused"] if shown.paused else [])]
    if "nodes" not in sample:
        return _of_tenant(shown, first, columns)
    live = sum(row["state"] == "live" for row in sample["nodes"])
    first += [several(live, "node"), f"{many(sums.get('ws_connections', 0))} connections"]
    first += [f"{many(sums.get('ws_users_online', 0))} users"]
    level = LEVELS[int(worst.get("realtime_overload_level", 0))]
    load = [
        f"load {level}",
        *(f"{name} {_plain(worst[metric])} {unit}" for name, metric, unit in LAGS if metric in worst),
    ]
    flows = [f"{name} {rate(rates[metric])}" for name, metric in RATES if metric in rates]
    lost = any(rates.get(metric) for name, metric in RATES if name in ALARMS)
    waiting = sums | worst
    queues = [f"{name} {many(waiting[metric])}" for name, metric in QUEUES if metric in waiting]
    queues += [_queue(name.removesuffix(WAITING), waiting) for name in sorted(waiting) if name.endswith(WAITING)]
    closes = [f"{code} {rate(per_s)}" for code, per_s in sorted(sample["closes"].items()) if per_s]
    return [
        *(ScreenLine(text, "head") for text in flow("", first, columns)),
        *(ScreenLine(text, STYLES.get(level, "")) for text in flow("", load, columns)),
        *(
            ScreenLine(text, "warn" if lost else "")
            for text in flow("per second:", flows or ["not known yet"], columns)
        ),
        *(ScreenLine(text) for text in flow("waiting:", queues, columns)),
        *(ScreenLine(text) for text in flow("closed, per second:", closes, columns) if closes),
    ]


def _queue(name: str, gauges: Mapping[str, float]) -> str:
    """Return the length of a queue, and the age of its oldest entry."""
    oldest_s = gauges.get(f"{name}{OLDEST}", 0)
    old = f" (oldest {duration(round(oldest_s * 1000))})" if oldest_s else ""
    return f"{name} {many(gauges[f'{name}{WAITING}'])}{old}"


def _of_tenant(shown: Shown, first: list[str], columns: int) -> list[ScreenLine]:
    """Return the head for a key that may not see nodes: figures of its tenant."""
    sums, rates = shown.sample["sums"], shown.sample["rates"]
    first += [f"tenant {shown.welcome['tenant']}", f"{many(sums.get('tenant_connections', 0))} connections"]
    first += [f"{many(sums.get('tenant_users_online', 0))} users"]
    flows = [f"{name.removeprefix('tenant_').removesuffix('_total')} {rate(per_s)}" for name, per_s in rates.items()]
    return [
        *(ScreenLine(text, "head") for text in flow("", first, columns)),
        *(ScreenLine(text) for text in flow("per second:", flows or ["not known yet"], columns)),
    ]


def _foot(shown: Shown, keys: str) -> list[ScreenLine]:
    if shown.trouble:
        return [ScreenLine(shown.trouble, "alarm")]
    return [ScreenLine(f"{keys}: {shown.sort}", "dim")] if keys else []


def _tables(shown: Shown) -> list[tuple[Sequence[str], list[ScreenLine]]]:
    """Return the tables: names of columns, the most important first, and rows with tabs between cells."""
    sample = shown.sample
    nodes = sorted(sample.get("nodes", ()), key=SORTS[shown.sort])
    hot = [
        _row(f"{it['kind']} {it['tenant']}/{it['name']}", many(it["per_s"]), many(it["listeners"]))
        for it in sample.get("hot", ())
    ]
    slow = [
        _row(f"{it['tenant']}/{it['user']}", _bytes(it["waiting"]), it["device"], it["node"], it["session"])
        for it in sample.get("slow", ())
    ]
    return [
        (("NODE", "LOAD", "CONN", "SENT/S", "CMD/S", "BUS/S", "LAG", "USERS", "RENEWED", "UP"), _nodes(nodes, shown)),
        (("HOT TOPIC", "WRITES/S", "SUBSCRIBERS"), hot),
        (("SLOW CLIENT", "BUFFERED", "DEVICE", "NODE", "SESSION"), slow),
    ]


def _nodes(rows: Sequence[Row], shown: Shown) -> list[ScreenLine]:
    lines = []
    for row in rows:
        state = row["level"] if row["state"] == "live" else "dead"
        if row["state"] == "live" and not row["answered"]:
            state = "silent"
        rates, started = row.get("rates", {}), row.get("started_at")
        line = _row(
            row["node"],
            state,
            many(_gauge(row, "ws_connections")),
            *(rate(rates[name]) if name in rates else NOTHING for name in (SENT, COMMANDS, HEARD)),
            f"{_gauge(row, 'realtime_loop_lag_ms'):g} ms",
            many(_gauge(row, "ws_users_online")),
            f"{left(row['renewed_ago_ms'] or 1)} ago",
            NOTHING if started is None else duration(shown.at_ms - started),
        )
        style = STYLES.get(state, "dim" if state == "dead" else "warn" if state == "silent" else "")
        lines.append(ScreenLine(line.text, style))
    return lines


def _row(*cells: str) -> ScreenLine:
    return ScreenLine("\t".join(cells))


def table(names: Sequence[str], rows: Sequence[ScreenLine], columns: int) -> list[ScreenLine]:
    """Return the first columns of a table, as many as fit, with their names in the first line."""
    cells = [[*names], *(row.text.split("\t") for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    fits = 1
    while fits < len(names) and sum(widths[: fits + 1]) + 2 * fits <= columns:
        fits += 1
    texts = [
        "  ".join(
            cell.ljust(width) if number == 0 or not _is_number(names[number]) else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line[:fits], widths[:fits], strict=True))
        ).rstrip()
        for line in cells
    ]
    return [
        ScreenLine(texts[0], "head"),
        *(ScreenLine(text, row.style) for text, row in zip(texts[1:], rows, strict=True)),
    ]


def _is_number(name: str) -> bool:
    return name not in ("LOAD", "DEVICE", "NODE", "SESSION", "UP", "RENEWED")


def flow(name: str, parts: Sequence[str], columns: int) -> list[str]:
    """Return a name and the parts after it, on as many lines as they need."""
    lines: list[str] = []
    for part in ([name] if name else []) + [*parts]:
        joined = f"{lines[-1]}  {part}" if lines else part
        if lines and len(joined) <= columns:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines


def many(count: float) -> str:
    """Format a count: `1,204`, `120k`, `1.2M`."""
    if count < 100_000:
        return f"{count:,.0f}"
    return f"{count / 1_000:,.0f}k" if count < 1_000_000 else f"{count / 1_000_000:,.1f}M"


def rate(per_s: float) -> str:
    """Format a rate, below 10 with a decimal: one in ten seconds is not zero."""
    return f"{per_s:.1f}" if 0 < per_s < 10 else many(per_s)


def _plain(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 10 else f"{value:.0f}"


def _bytes(count: int) -> str:
    return f"{count} B" if count < 1_024 else f"{count / 1_024:,.0f} KiB"


def _gauge(row: Row, name: str) -> float:
    value: float = row.get("gauges", {}).get(name, 0)
    return value
