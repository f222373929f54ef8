"""docs/javascript.md matches the JavaScript client."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from greendot import __version__
from greendot.http.client_files import FILES
from greendot.protocol.codes import Close, invites_return

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "javascript.md").read_text()
REASONS = (ROOT / "clients" / "js" / "src" / "reasons.ts").read_text()
ROWS = {
    code.strip("`"): (text, action)
    for code, text, action in re.findall(r"^\| (\S+) \| (.+?) \| `(.+?)` \|", PAGE, re.M)
}
SAID = {code: (text, action) for code, text, action in re.findall(r'^  (\w+): \["(.+)", "(.+)"\],$', REASONS, re.M)}


@pytest.mark.parametrize("code", [code for code in Close if code >= 4000], ids=str)
def test_every_close_code_has_a_row_with_what_to_show(code: Close) -> None:
    _, action = ROWS[str(int(code))]
    assert (action == "wait") is invites_return(code)


def test_the_rows_are_those_of_the_client() -> None:
    assert len(SAID) > 15
    lost, refused = SAID.pop("lost"), SAID.pop("refused")  # texts of codes without an entry in REASONS
    assert {**SAID, "1000–1015": lost, "4002": lost} == ROWS
    for text, action in (lost, refused):
        assert re.search(rf"^\| (another|any other) code.* \| {re.escape(text)} \| `{action}` \|", PAGE, re.M)


def test_every_option_has_a_row() -> None:
    options = (ROOT / "clients" / "js" / "src" / "options.ts").read_text()
    block = options.split("export interface GreendotOptions {")[1].split("\n}\n")[0]
    names = set(re.findall(r"^  (\w+)\??:", block, re.M))
    assert names == set(re.findall(r"^\| `(\w+)(?:\(why\))?` \| [^|]+ \|$", PAGE, re.M)) | {"clock", "random", "page"}


def test_every_file_that_a_server_serves_is_listed_with_the_current_version() -> None:
    assert set(re.findall(r"`/(greendot[\w.-]+)`", PAGE)) == FILES.keys()
    versions = re.findall(r"/greendot/([^/{]+)/|greendot-client-(.+?)\.tgz", PAGE)
    assert {*filter(None, (part for found in versions for part in found))} == {__version__}
