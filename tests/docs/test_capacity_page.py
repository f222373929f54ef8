"""Constants of `greendot plan` equal the measurements, and the page shows its current output."""

from __future__ import annotations

import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from greendot.cli import cli
from greendot.ops.capacity.constants import CONSTANTS, Constant

ROOT = Path(__file__).parents[2]
RESULTS = (ROOT / "bench" / "RESULTS.md").read_text()
PAGE = (ROOT / "docs" / "capacity.md").read_text()


def measured(constant: Constant) -> float:
    """Return the number in the constant's table cell."""
    section = re.split(r"\n#{2,3} ", RESULTS)
    (text,) = [part for part in section if part.startswith(f"{constant.section}\n") and "|--" in part]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    cells = [row for row in rows if row[0] == constant.row]
    assert len(cells) == 1, constant.source
    found = re.match(r"[\d,.]+", cells[0][constant.column])
    assert found, cells
    return float(found[0].replace(",", ""))


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_is_what_was_measured(name: str) -> None:
    """After a new benchmark run, change src/greendot/ops/capacity/constants.py, then run scripts/capacity-page."""
    assert CONSTANTS[name].value == measured(CONSTANTS[name]), CONSTANTS[name].source


def test_the_capacity_page_matches_the_output_of_the_command() -> None:
    loader = SourceFileLoader("capacity_page", str(ROOT / "scripts" / "capacity-page"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    script = module_from_spec(spec)
    loader.exec_module(script)
    assert script.refreshed(PAGE) == PAGE, "run: python scripts/capacity-page"
    for users in ("10000", "1000000", "10000000", "100000000"):
        assert f"$ greendot plan --users {users}\n" in PAGE


def test_the_page_has_every_option_with_its_default() -> None:
    documented = dict(re.findall(r"^\| (`--[^|]*) \| ([^|]*) \|", PAGE, re.MULTILINE))
    known = {name: default for names, default in documented.items() for name in re.findall(r"`(--[\w-]+)`", names)}
    options = {option.opts[0]: option for option in cli.all()["plan"].params}
    assert known.keys() == options.keys() - {"--constants", "--json"}
    for name, text in known.items():
        default = options[name].default
        shown = str(default) if isinstance(default, str) else f"{default:,}".removesuffix(".0")
        assert shown in text.split(", ") or shown == text, name


def test_the_figures_of_redis_on_the_page_are_the_measured_ones() -> None:
    (said,) = re.findall(r"(\d+) bytes for each followed user or room,\s+and (\d+) for each further node",
                         (ROOT / "docs" / "redis-keys.md").read_text())  # fmt: skip
    assert (float(said[0]), float(said[1])) == (CONSTANTS["channel"].value, CONSTANTS["subscriber"].value)
