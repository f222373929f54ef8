"""docs/messages.md has the texts of the source as they are now."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "messages.md"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "messages-page"))


def test_the_messages_page_matches_the_source(script: dict[str, Any]) -> None:
    assert script["page"]() == PAGE.read_text(), "run: python scripts/messages-page"


def test_the_page_has_texts_of_every_place(script: dict[str, Any]) -> None:
    page = PAGE.read_text()
    for place in script["PLACES"]:
        assert f"\n## {place}\n" in page
    for code, module in (
        (r"rate\\_limited", "limits.rate_limits"),
        ("4005", "presence.deadlines"),
        ("401", "auth.api_keys"),
        ("error", "ops.doctor.store"),
    ):
        assert re.search(rf"^\| {code} \|.* `{module}` \|$", page, re.MULTILINE), module
    assert len(re.findall(r"^\| .* \|$", page, re.MULTILINE)) > 700
