"""Errors of the operators' commands. tests/e2e/test_inspect.py covers their output."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.calls import SECRET, complaint
from redis_servers import free_port

COMMANDS = [["nodes"], ["presence", "alice"], ["sessions", "alice"], ["typing", "club"], ["sweep"]]
every_command = pytest.mark.parametrize("command", COMMANDS, ids=[name for name, *_ in COMMANDS])
NOWHERE = "redis://ann:hush@127.0.0.1:1"


READS = COMMANDS[:-1]
every_read = pytest.mark.parametrize("command", READS, ids=[name for name, *_ in READS])


@every_read
def test_on_the_memory_engine_the_server_of_this_machine_is_asked(command: list[str]) -> None:
    port = str(free_port())
    said = complaint(*command, GREENDOT_API_KEY="key", GREENDOT_SERVER_PORT=port)
    assert said == (
        f"no server answers at http://127.0.0.1:{port}: Connection refused. Start one (greendot serve --dev), choose "
        "another with --url, or read the engine that the servers share with --engine URL."
    )


@every_read
def test_a_server_is_asked_whatever_the_engine_of_the_settings(command: list[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    said = complaint(*command, "--url", f"{url}/", GREENDOT_API_KEY="key", GREENDOT_ENGINE_URL=NOWHERE)
    assert said.startswith(f"no server answers at {url}: Connection refused.")


@every_read
def test_a_server_is_not_asked_without_a_key(command: list[str]) -> None:
    said = complaint(*command, "--url", "http://127.0.0.1:1")
    assert "Set GREENDOT_API_KEY to the server's key, or read the engine" in said
    assert "http://" in complaint(*command, "--url", "ftp://localhost", GREENDOT_API_KEY="key")


def test_a_sweep_needs_a_shared_engine() -> None:
    said = complaint("sweep")
    assert "inside the server process" in said
    assert "\n" not in said
    assert "--url" in complaint("sweep", "--url", "http://127.0.0.1:1")


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
        (["typing", "club", "--tenant", "acme"], "--tenant needs a shared engine"),
        (["sessions", "alice", "--tenant", "acme", "--url", "http://h"], "--tenant needs a shared engine"),
        (["presence", "alice", "--engine", NOWHERE, "--url", "http://h"], "either --url"),
        (["sweep", "all"], "all"),
        (["nodes", "--engine", "rabbit://localhost"], "engine.url"),
        (["nodes", "--engine", "redis://[::1"], "engine.url"),
        (["nodes", "--engine", "redis://localhost:port"], "engine.url"),
        (["nodes", "--config", "/nowhere/greendot.toml"], "/nowhere/greendot.toml"),
    ],
)
def test_what_cannot_be_meant_is_named(arguments: list[str], word: str) -> None:
    assert word in complaint(*arguments)
