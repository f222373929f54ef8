"""The `greendot` command as a whole."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator

import click
import msgspec
import pytest

from cli.calls import call, complaint
from greendot import __version__
from greendot.app.http import document
from greendot.cli import cli, main
from greendot.cli._group import Group
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


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["serv"], "No such command 'serv'. Did you mean 'serve'?"),
        (["session", "alice"], "Did you mean 'sessions'?"),
        (["check_config"], "Did you mean 'check-config'?"),
        (["keys", "creat", "x"], "No such command 'creat'. Did you mean 'create'?"),
        (["inspect", "users", "x"], "Did you mean 'user'?"),
        (["xyzzy"], "No such command 'xyzzy'.\n"),
        (["keys", "xyzzy"], "No such command 'xyzzy'.\n"),
    ],
)
def test_the_nearest_command_is_suggested(arguments: list[str], meant: str) -> None:
    assert meant in complaint(*arguments)


def groups(group: click.Group, name: str = "greendot") -> Iterator[tuple[str, click.Group]]:
    yield name, group
    for own in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), own)
        if isinstance(command, click.Group):
            yield from groups(command, f"{name} {own}")


def test_every_group_suggests_its_commands() -> None:
    found = dict(groups(cli))
    assert len(found) > 5
    assert [name for name, group in found.items() if not isinstance(group, Group)] == []


@pytest.mark.parametrize("arguments", [["serve", "--prot", "1"], ["keys", "create", "x", "--scop", "admin"]])
def test_the_nearest_option_is_suggested(arguments: list[str]) -> None:
    assert re.search(r"Did you mean .*'--(port|scope)'", complaint(*arguments))


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
