"""The `greendot` command as a whole."""

from __future__ import annotations

import json
import sys

import msgspec
import pytest

from cli.calls import call, complaint
from greendot import __version__
from greendot.app.http import document
from greendot.cli import cli, main
from greendot.http import asyncapi


def test_it_knows_its_version() -> None:
    assert call("version").output == f"greendot {__version__}\n"
    found = msgspec.json.decode(call("version", "--json").output)
    assert found["version"] == __version__
    assert found["tables"].keys() == {"sqlite", "postgres"}
    assert __version__ in call("--version").output


@pytest.mark.parametrize("command", cli.list_commands())
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_explains_itself(command: str, flag: str) -> None:
    result = call(command, flag)
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: cli {command}")
    assert command in call(flag).output


def test_an_unknown_command_or_flag_is_named() -> None:
    assert "sever" in complaint("sever")
    assert "--prot" in complaint("serve", "--prot", "1")


def test_the_openapi_document_is_printed_as_servers_serve_it() -> None:
    assert json.loads(call("openapi").output) == json.loads(json.dumps(document()))


def test_the_asyncapi_document_is_printed_as_servers_serve_it() -> None:
    assert json.loads(call("asyncapi").output) == json.loads(json.dumps(asyncapi.document()))


def test_what_cannot_be_done_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["greendot", "token", "a b"])
    monkeypatch.setenv("GREENDOT_AUTH_SECRET", "a secret of at least thirty-two characters")
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("greendot: user 'a b' is not a valid id")
    assert printed.err.count("\n") == 1
