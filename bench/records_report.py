"""Report of the record figures with their targets."""

from __future__ import annotations

from functools import singledispatch
from statistics import median

from records_measure import SENDERS, Notified, Returned, Said, Told, Written
from report import Row, rate, verdict

NOTIFIED_TARGET = 6_000  # per second
SAID_TARGET = 1_500  # per second, in either store
TOLD_P50_MS, TOLD_P99_MS = 8, 30
READS_TARGET = 20


@singledispatch
def rows(figures: object) -> list[Row]:
    """Return the rows of one measurement, by its type."""
    raise TypeError(figures)


@rows.register
def _notified(found: Notified) -> list[Row]:
    what = "notifications through HTTP in lists of 100, PostgreSQL"
    return [rate(what, found.rates, "/s", NOTIFIED_TARGET), *_beside(what, found)]


@rows.register
def _said(found: Said) -> list[Row]:
    made = []
    for store, written in found.together.items():
        what = f"messages of {SENDERS} senders in one room, {store}"
        made += [rate(what, written.rates, "/s", SAID_TARGET), *_beside(what, written), _acknowledged(what, written)]
    for store, written in found.apart.items():
        what = f"messages of {SENDERS} senders in rooms of their own, {store}"
        made += [rate(what, written.rates, "/s"), *_beside(what, written), _acknowledged(what, written)]
    return made


def _beside(what: str, written: Written) -> list[Row]:
    if not written.single:
        return []
    ratios = [ours / single for ours, single in zip(written.rates.values, written.single, strict=True)]
    low, high = min(written.single), max(written.single)
    return [
        Row("pgbench, single-row inserts", f"{median(written.single):,.0f} commits/s", f"{low:,.0f}–{high:,.0f}"),
        Row(f"{what} ÷ pgbench", f"{median(ratios):.2f}", f"{min(ratios):.2f}–{max(ratios):.2f}"),
    ]


def _acknowledged(what: str, written: Written) -> Row:
    worst = median(written.p99_ms)
    return Row(f"{what}: acknowledged after", f"{median(written.p50_ms):.1f} ms", f"99 % within {worst:.1f} ms")


@rows.register
def _told(told: Told) -> list[Row]:
    what = f"from `room.send` to {told.listeners} other sockets at {told.rate:g}/s, SQLite"
    made = []
    for name, values, target in (("p50", told.p50_ms, TOLD_P50_MS), ("p99", told.p99_ms, TOLD_P99_MS)):
        middle, spread = median(values), f"{min(values):.2f}–{max(values):.2f}"
        made.append(
            Row(
                f"{what}: {name}",
                f"{middle:.2f} ms",
                spread,
                target=f"≤ {target} ms",
                verdict=verdict(middle <= target),
            )
        )
    return made


@rows.register
def _returned(found: Returned) -> list[Row]:
    totals = [sum(reads.values()) for reads in found.reads]
    what = f"{found.clients:,} clients back at once, {found.behind} messages behind"
    return [
        Row(
            f"{what}: reads of the store",
            f"{median(totals):g}",
            f"{min(totals)}–{max(totals)}",
            target=f"≤ {READS_TARGET}",
            verdict=verdict(max(totals) <= READS_TARGET),
        ),
        Row(f"{what}: all have everything after", f"{median(found.seconds):.2f} s"),
    ]
