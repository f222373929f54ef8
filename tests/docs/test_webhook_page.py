"""docs/webhooks.md matches the sent webhooks, and its example accepts only signed requests of Greendot."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from greendot.protocol.events import RoomMessage
from greendot.protocol.webhooks import (
    RECORDS,
    SIGNALS,
    TYPES,
    Audited,
    CreatedFor,
    OfRoom,
    OfUser,
    UpdatedFor,
    signature,
)

PAGE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text()
DATA = dict(zip(TYPES, (OfUser, OfUser, OfRoom, OfRoom, RoomMessage, CreatedFor, UpdatedFor, Audited), strict=True))
SECRET, BODY, NOW = "s" * 40, '{"events":["é"]}', 1_800_000_000


def test_every_type_is_documented_with_its_data_and_promise() -> None:
    rows = re.findall(r"^\| `(\w+\.\w+)` \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [row[0] for row in rows] == [*TYPES]
    for kind, data, promise in rows:
        named = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", data))
        assert named == [field.name for field in msgspec.structs.fields(DATA[kind])], kind
        assert promise == ("best effort" if kind in SIGNALS else "at least once")
    assert {*SIGNALS} | {*RECORDS} == {*TYPES}


def node() -> str | None:
    """Return the path of any Node.js; Playwright has one."""
    try:
        import playwright
    except ImportError:
        return shutil.which("node")
    return shutil.which("node") or str(Path(playwright.__file__).parent / "driver" / "node")


@pytest.mark.parametrize(
    ("header", "good"),
    [
        (signature([SECRET], NOW, BODY.encode()), True),
        (signature(["x" * 40, SECRET], NOW, BODY.encode()), True),
        (signature(["x" * 40], NOW, BODY.encode()), False),
        (signature([SECRET], NOW - 301, BODY.encode()), False),
        (signature([SECRET], NOW, b"{}"), False),
        ("", False),
        ("t=1,v1", False),
        (None, False),
    ],
)
def test_the_example_in_javascript_works(tmp_path: Path, header: str | None, good: bool) -> None:
    program = node()
    if program is None or not Path(program).exists():
        pytest.skip("Node.js is not installed")
    (example,) = re.findall(r"```js\n(.*?)```", PAGE, re.DOTALL)
    asked = f"fromGreendot(Buffer.from({json.dumps(BODY)}), {json.dumps(header)}, {json.dumps(SECRET)}, {NOW})"
    file = tmp_path / "example.mjs"
    file.write_text(f"{example}\nconsole.log({asked});\n")
    said = subprocess.run([program, file], capture_output=True, text=True, timeout=30)
    assert (said.stdout, said.stderr) == ("true\n" if good else "false\n", "")
