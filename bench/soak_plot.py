"""Plot of a soak test: small panels with the series over time, as one SVG for light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 430, 170  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 30, 24  # of the plot within its panel
COLUMNS, HEAD = 2, 56
POINTS = 500  # of a line; more would not be visible
COLORS = ("a", "b", "c", "d")  # classes in STYLE
STYLE = """
svg { color-scheme: light dark; --page: #fff; --ink: #24292f; --soft: #6a737d; --grid: #e4e7eb;
  --a: #1f9d55; --b: #2f6fd0; --c: #c2571a; --d: #8250df }
@media (prefers-color-scheme: dark) { svg { --page: #16191d; --ink: #e6e9ec; --soft: #9aa4af; --grid: #31363c;
  --a: #4ac583; --b: #79b0ff; --c: #f2a16b; --d: #c4a1ff } }
.page { fill: var(--page) } text { fill: var(--ink); font: 11px system-ui, sans-serif }
.title { font-weight: 600; font-size: 12px } .head { font-weight: 600; font-size: 15px } .soft { fill: var(--soft) }
.grid { stroke: var(--grid); stroke-width: 1; fill: none } .fault { stroke: var(--grid); stroke-width: 1 }
.line { fill: none; stroke-width: 1.3 } .a { stroke: var(--a) } .b { stroke: var(--b) } .c { stroke: var(--c) }
.d { stroke: var(--d) } .key { stroke: none } .key.a { fill: var(--a) } .key.b { fill: var(--b) }
.key.c { fill: var(--c) } .key.d { fill: var(--d) }
"""
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """Panel with up to four lines: names in the legend → points. Values are divided by `unit` before they are shown."""

    title: str
    lines: Mapping[str, Points]
    unit: float = 1.0


def draw(heading: str, note: str, panels: Sequence[Panel], seconds: float, faults: Sequence[float]) -> str:
    """Return the SVG. All panels have the time in minutes, and a thin line at each fault."""
    rows = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * WIDTH, HEAD + rows * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>{escape(heading)}</title><style>{STYLE}</style>',
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text class="head" x="14" y="24">{escape(heading)}</text>',
        f'<text class="soft" x="14" y="42">{escape(note)}</text>',
    ]
    for number, panel in enumerate(panels):
        x, y = number % COLUMNS * WIDTH, HEAD + number // COLUMNS * HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel, seconds, faults), "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel, seconds: float, faults: Sequence[float]) -> list[str]:
    top = round_up(max((value for points in panel.lines.values() for _, value in points), default=0) / panel.unit)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x_of(at: float) -> float:
        return LEFT + at / max(seconds, 1e-9) * (right - LEFT)

    def y_of(value: float) -> float:
        return bottom - value / panel.unit / top * (bottom - TOP)

    parts = [f'<text class="title" x="{LEFT}" y="14">{escape(panel.title)}</text>']
    ticks = " ".join(f"M{x_of(at):.1f} {TOP}V{bottom}" for at in faults)
    parts.append(f'<path class="fault" stroke-dasharray="1 3" d="{ticks}"/>')
    for share in (0, 0.5, 1):
        y = bottom - share * (bottom - TOP)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text class="soft" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{top * share:,g}</text>')
    for share in (0, 0.25, 0.5, 0.75, 1):
        at, anchor = seconds * share, "end" if share == 1 else "middle"
        minutes = f"{at / 60:.3g}"
        text = f"{minutes} min" if share == 1 else minutes
        place = f'x="{x_of(at):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}"'
        parts.append(f'<text class="soft" {place}>{text}</text>')
    at = right
    for (name, points), color in reversed([*zip(panel.lines.items(), COLORS, strict=False)]):
        parts.append(f'<path class="line {color}" d="{_path(points, x_of, y_of)}"/>')
        if len(panel.lines) > 1:
            at -= 6.6 * len(name) + 18
            parts.append(f'<circle class="key {color}" cx="{at:.0f}" cy="10" r="4"/>')
            parts.append(f'<text x="{at + 7:.0f}" y="14">{escape(name)}</text>')
    return parts


def _path(points: Points, x_of, y_of) -> str:
    """Return the path of a line. Of many points, each kept one has the highest value of its neighbours."""
    step = -(-len(points) // POINTS) or 1
    kept = [max(points[i : i + step], key=lambda point: point[1]) for i in range(0, len(points), step)]
    return "M" + "L".join(f"{x_of(at):.1f} {y_of(value):.1f}" for at, value in kept) if kept else ""


def round_up(value: float) -> float:
    """Return the next of 1, 2, 3, 4, 5, 6, 8 and 10 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(f"{int(value)}") - 1) if value >= 1 else 0.1
    while power > value:
        power /= 10
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= value - 1e-12)
