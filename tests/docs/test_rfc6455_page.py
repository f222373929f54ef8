"""docs/reference/rfc6455.md: the outcome that `make autobahn` checks."""

from __future__ import annotations

from pathlib import Path

from rfc6455.expected import page

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_outcome_that_the_run_requires() -> None:
    assert (ROOT / "docs" / "reference" / "rfc6455.md").read_text() == page(), "write it again: make autobahn WRITE=1"
