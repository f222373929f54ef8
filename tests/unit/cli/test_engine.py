"""Errors of the operators' commands. tests/e2e/test_inspect.py covers their output."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.calls import SECRET, complaint
from redis_servers import free_port

COMMANDS = [["nodes"], ["presence", "alice"], ["sessions", "alice"], ["typing", "club"], ["sweep"]]
every_command = pytest.mark.parametrize("command", COMMANDS, ids=[name for name, *_ in COMMANDS])
NOWHERE = "redis://ann:hush@127.0.0.1:1"


@pytest.mark.parametrize(
    ("command", "request_line"),
    [
        (["nodes"], "GET /v1/nodes"),
        (["presence", "alice"], "GET /v1/users/alice/presence"),
        (["presence", "alice", "bob"], "POST /v1/presence/query"),
        (["sessions", "alice"], "GET /v1/users/alice/sessions"),
        (["typing", "club"], "GET /v1/rooms/club/typing"),
        (["sweep"], "GET /v1/stats"),
    ],
)
def test_a_command_on_the_memory_engine_is_refused_and_names_the_equivalent_request(
    command: list[str], request_line: str
) -> None:
    said = complaint(*command)
    assert "inside the server process" in said
    assert f"Send the server {request_line}. " in said
    assert "\n" not in said


@every_command
def test_without_the_secret_the_engine_commands_name_the_remedy(command: list[str], tmp_path: Path) -> None:
    said = complaint(*command, "--engine", NOWHERE, secret="", GREENDOT_SERVER_DATA_DIR=str(tmp_path))
    assert "GREENDOT_AUTH_SECRET" in said
    assert str(tmp_path) in said


@every_command
def test_an_engine_that_is_not_there_is_named_without_its_password(command: list[str]) -> None:
    port = free_port()
    said = complaint(*command, "--engine", f"redis://ann:hush@127.0.0.1:{port}")
    assert said == f"Redis at 127.0.0.1:{port} cannot be used: Connection refused"


def test_the_engine_and_a_dev_servers_secret_are_found_where_the_server_finds_them(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    file = tmp_path / "greendot.toml"
    file.write_text(f"[engine]\nurl = '{NOWHERE}'\n[server]\ndata_dir = '{tmp_path}'")
    environment = {"secret": "", "GREENDOT_SERVER_DATA_DIR": str(tmp_path)}
    assert "Redis at 127.0.0.1:1 " in complaint("nodes", "--config", str(file), **environment)
    assert "Redis at 127.0.0.1:1 " in complaint("nodes", GREENDOT_ENGINE_URL=NOWHERE, **environment)
    # A flag takes precedence over the file and the environment.
    assert "Redis at 127.0.0.1:2 " in complaint("nodes", "--engine", "redis://127.0.0.1:2", "--config", str(file))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["presence"], "USER"),
        (["presence", "alice", "a b"], "user 'a b'"),
        (["presence", "alice", "--tenant", "a/b"], "tenant 'a/b'"),
        (["sessions"], "USER"),
        (["sessions", ""], "user ''"),
        (["sessions", "alice", "bob"], "bob"),
        (["sessions", "alice", "--tenant", ""], "tenant ''"),
        (["typing"], "ROOM"),
        (["typing", "a/b"], "room 'a/b'"),
        (["typing", "club", "--tenant", "*"], "tenant '*'"),
        (["nodes", "--tenant", "acme"], "--tenant"),
        (["sweep", "all"], "all"),
        (["nodes", "--engine", "rabbit://localhost"], "engine.url"),
        (["nodes", "--engine", "redis://[::1"], "engine.url"),
        (["nodes", "--engine", "redis://localhost:port"], "engine.url"),
        (["nodes", "--config", "/nowhere/greendot.toml"], "/nowhere/greendot.toml"),
    ],
)
def test_what_cannot_be_meant_is_named(arguments: list[str], word: str) -> None:
    assert word in complaint(*arguments)
