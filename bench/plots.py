"""Plots of the figures for RESULTS.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from peer_measure import WITH_REDIS, Figures
from peer_report import latency, middle, ranked
from serverd import Trouble

OURS, THEIRS, FLOOR = "#1f9d55", "#8a94a6", "#c9ced8"


def draw(found: Mapping[str, Figures], folder: Path) -> list[Path]:
    """Draw the plots for which there are figures, and return their paths."""
    try:
        import matplotlib
    except ImportError:
        raise Trouble("The plots need matplotlib: run `make bench`, which installs it (extra `bench`).") from None
    matplotlib.use("Agg")
    folder.mkdir(exist_ok=True)
    contenders = [one for one in ranked(found) if one.name != WITH_REDIS]
    made = []
    if any(one.rates for one in contenders):
        made.append(_deliveries(contenders, folder / "deliveries.png"))
    if any(one.latency for one in contenders):
        made.append(_latencies(contenders, folder / "latency.png"))
    if any(one.idle for one in contenders) or any(one.connects for one in contenders):
        made.append(_connections(contenders, folder / "connections.png"))
    return made


def _deliveries(contenders: Sequence[Figures], path: Path) -> Path:
    """Draw one axis for each number of messages in flight, all from zero."""
    levels = sorted({level for one in contenders for level in one.rates})
    figure, axes = _panels(
        len(levels), len(contenders), "Deliveries per second to 1,000 subscribers, bodies of 128 bytes"
    )
    for axis, level in zip(axes, levels, strict=True):
        values = [middle(one.rates.get(level, {})) for one in contenders]
        spreads = [list(one.rates.get(level, {}).values()) for one in contenders]
        texts = [
            f"{value / 1000:,.0f} k" if value else ("too slow" if one.too_slow_for(level) else "not measured")
            for one, value in zip(contenders, values, strict=True)
        ]
        _bars(axis, contenders, values, texts, f"{level} message{'s' * (level > 1)} in flight", spreads)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f} k" if value else "0")
        axis.locator_params(axis="x", nbins=4)
    _save(figure, path, "bars: median of the rounds; lines: lowest to highest")
    return path


def _latencies(contenders: Sequence[Figures], path: Path) -> Path:
    shown = [one for one in contenders if one.latency]
    figure, (axis,) = _panels(
        1, len(shown), "How old a delivery is at half load (each at half of its own rate)", width=9
    )
    for which, text, marker in (("p50_ms", "p50", "o"), ("p99_ms", "p99", "s"), ("p999_ms", "p99.9", "D")):
        values = [latency(one, which) for one in shown]
        colors = [_color(one) for one in shown]
        axis.scatter(values, range(len(shown)), c=colors, marker=marker, s=50, zorder=3)
        axis.scatter([], [], c="#555", marker=marker, label=text)
    for at, one in enumerate(shown):
        axis.plot([latency(one, "p50_ms"), latency(one, "p999_ms")], [at, at], color=_color(one), lw=1, zorder=2)
    axis.set_yticks(
        range(len(shown)), [f"{one.label}\n{latency(one, 'rate'):,.0f} messages/s" for one in shown], fontsize=8
    )
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlabel("milliseconds, logarithmic scale")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in "25" else "")
    axis.grid(axis="x", which="both", color="#eee", zorder=0)
    axis.legend(loc="upper right", frameon=True)
    _save(
        figure, path, "1,000 deliveries a message; from when a message was due until it was read; median of the rounds"
    )
    return path


def _connections(contenders: Sequence[Figures], path: Path) -> Path:
    shown = [one for one in contenders if one.idle or one.connects]
    n = max((one.idle.connections for one in shown if one.idle), default=0)
    panels: list[tuple[str, Callable[[Figures], float | None], str]] = [
        (
            f"KB of memory per idle\nconnection, at {n:,}",
            lambda one: one.idle and one.idle.bytes_each / 1000,
            "{:.1f} KB",
        ),
        ("% of a core per 10,000\nidle connections", lambda one: one.idle and one.idle.cpu_per_10_000(100), "{:.1f} %"),
        ("connects per second", lambda one: middle(one.connects) or None, "{:,.0f}/s"),
    ]
    panels = [panel for panel in panels if any(panel[1](one) is not None for one in shown)]
    figure, axes = _panels(len(panels), len(shown), "Connections")
    for axis, (title, value_of, form) in zip(axes, panels, strict=True):
        values = [value_of(one) for one in shown]
        texts = ["not measured" if value is None else form.format(value) for value in values]
        if "idle" in title:  # a slow server was measured with fewer connections
            fewer = [
                f" (with {one.idle.connections:,})" if one.idle and one.idle.connections < n else "" for one in shown
            ]
            texts = [text + more for text, more in zip(texts, fewer, strict=True)]
        _bars(axis, shown, [value or 0 for value in values], texts, title)
    _save(
        figure,
        path,
        "Greendot: hello, signed token; Centrifugo: the same token; the others: upgrade and their handshake",
    )
    return path


def _panels(count: int, bars: int, title: str, width: float = 13):  # not annotated, to avoid importing matplotlib
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, count, figsize=(width, 1.9 + 0.42 * bars), sharey=count > 1, squeeze=False)
    figure.suptitle(title, fontsize=13, fontweight="bold")
    return figure, list(axes[0])


def _bars(
    axis,
    contenders: Sequence[Figures],
    values: Sequence[float],
    texts: Sequence[str],
    title: str,
    spreads: Sequence[Sequence[float]] = (),
) -> None:
    """Draw bars from zero. With several rounds, a line shows the lowest and the highest."""
    axis.barh(range(len(contenders)), values, color=[_color(one) for one in contenders], zorder=2)
    ends = [max([value, *rounds]) for value, rounds in zip(values, spreads or [[]] * len(values), strict=True)]
    room = max([*ends, 1e-9]) * 1.4  # space for the texts
    for at, (text, end) in enumerate(zip(texts, ends, strict=True)):
        axis.text(end + room * 0.02, at, text, va="center", fontsize=9)
    for at, rounds in enumerate(spreads):
        if len(rounds) > 1:
            axis.plot([min(rounds), max(rounds)], [at, at], color="#222", lw=1, marker="|", zorder=3)
    axis.set_yticks(range(len(contenders)), [one.label for one in contenders])
    axis.set_title(title, fontsize=10)
    axis.set_xlim(0, room)
    axis.grid(axis="x", color="#eee", zorder=0)
    axis.spines[["top", "right"]].set_visible(False)
    if not axis.yaxis_inverted():
        axis.invert_yaxis()


def _color(one: Figures) -> str:
    return {"greendot": OURS, "raw": FLOOR}.get(one.name, THEIRS)


def _save(figure, path: Path, note: str) -> None:
    import matplotlib.pyplot as plt

    figure.text(0.99, 0.01, note, ha="right", fontsize=8, color="#666")
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)
