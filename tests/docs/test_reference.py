"""Reference of the JavaScript packages matches their current types."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from clients.javascript import CLIENTS, installed

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
FOLDERS = {
    "javascript": "js/src",
    "stores": "js/src/stores",
    "react": "react/src",
    "react-components": "react/src/components",
    "vue": "vue/src",
    "server": "server/src",
}


@pytest.mark.timeout(120)
def test_the_reference_is_that_of_the_types() -> None:
    installed()
    command = ["node", "reference.mjs", "--print"]
    fresh = subprocess.run(command, cwd=CLIENTS, capture_output=True, text=True, timeout=110)
    assert fresh.returncode == 0, fresh.stderr
    pages = json.loads(fresh.stdout)
    assert pages.keys() == FOLDERS.keys()
    for name, text in pages.items():
        assert text == (REFERENCE / f"{name}.md").read_text(), "run: npm run reference (in clients/)"


@pytest.mark.parametrize(("name", "folder"), FOLDERS.items())
def test_everything_that_is_exported_is_there(name: str, folder: str) -> None:
    index = (CLIENTS / folder / "index.ts").read_text()
    exported = {
        word.strip().removeprefix("type ")
        for names in re.findall(r"export (?:type )?\{([^}]*)\}", index)
        for word in names.split(",")
        if word.strip()
    }
    headings = set(re.findall(r"^### (\w+)$", (REFERENCE / f"{name}.md").read_text(), re.MULTILINE))
    assert len(exported) > 8
    assert exported <= headings
