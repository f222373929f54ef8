"""The reference of all metrics, made of the catalogue: what stands in `docs/metrics.md` between its two marks."""

from __future__ import annotations

import sys
from pathlib import Path

from greendot.telemetry.metrics_catalogue import SECTIONS, Metric

BEGIN, END = "<!-- made of src/greendot/telemetry/metrics_catalogue.py -->", "<!-- end -->"


def tables() -> str:
    """One for each section."""
    return "\n".join(line for title, metrics in SECTIONS.items() for line in _table(title, metrics))


def renewed(page: str) -> str:
    """The page with the tables as they are now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{tables()}{END}{rest.partition(END)[2]}"


def _table(title: str, metrics: tuple[Metric, ...]) -> list[str]:
    rows = [
        f"| `{it.name}` | {it.type} | {', '.join(f'`{label}`' for label in it.labels)} | {it.help} |" for it in metrics
    ]
    return [f"## {title}", "", "| metric | type | labels beside `node` | meaning |", "|---|---|---|---|", *rows, ""]


if __name__ == "__main__":  # python -m greendot.telemetry.metrics_reference docs/metrics.md
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(renewed(path.read_text()))
