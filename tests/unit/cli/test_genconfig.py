"""`greendot genconfig`: fresh secrets, no overwritten file, and settings in which the doctor finds no problem."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.calls import call, complaint
from greendot.config import load

FULL = (
    *("--origin", "https://app.example.com", "--origin", "https://b.example", "--name", "chat.example.com"),
    *("--proxy", "10.0.0.7", "--audience", "chat", "--webhook", "https://app.example.com/hook", "--port", "9000"),
)


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")}


def generated(file: Path, *flags: str) -> dict[str, Any]:
    result = call("genconfig", str(file), "--no-input", *flags)
    assert result.exit_code == 0, result.output
    return tomllib.loads(file.read_text())


def test_it_is_taken_by_a_server_and_a_doctor_has_nothing_to_complain_of(tmp_path: Path) -> None:
    file, data = tmp_path / "greendot.toml", tmp_path / "data"
    data.mkdir(mode=0o700)
    generated(file, *FULL, "--data-dir", str(data))
    settings = load(file, {}, {})
    assert settings.door.origins == ("https://app.example.com", "https://b.example")
    assert (settings.server.host, settings.server.port, settings.auth.audience) == ("0.0.0.0", 9000, "chat")
    words = [sys.executable, "-m", "greendot", "doctor", "--json", "--connections", "100", "--config", str(file)]
    result = subprocess.run(words, env=clean(), capture_output=True, text=True, timeout=30)
    findings = json.loads(result.stdout)["findings"]
    assert [one for one in findings if one["weight"] in ("error", "warning") and one["about"] != "machine"] == []


def test_secrets_are_fresh_each_its_own_not_shown_and_for_the_owner_only(tmp_path: Path) -> None:
    first, second = (generated(tmp_path / name, *FULL) for name in ("a.toml", "b.toml"))
    found = [
        made[section][key]
        for made in (first, second)
        for section, key in (("auth", "secret"), ("api", "key"), ("privacy", "hash_key"), ("webhooks", "secret"))
    ]
    assert len({*found}) == 8
    assert all(len(secret) == 64 for secret in found)
    assert stat.S_IMODE((tmp_path / "a.toml").stat().st_mode) == 0o600
    said = call("genconfig", str(tmp_path / "a.toml"), "--no-input", "--force").output
    assert tomllib.loads((tmp_path / "a.toml").read_text())["auth"]["secret"] not in said


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text("# mine\n")
    assert "--force" in complaint("genconfig", str(file), "--no-input")
    assert file.read_text() == "# mine\n"
    file.chmod(0o644)
    generated(file, "--force")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["greendot.toml"]
    assert "is a folder" in complaint("genconfig", str(tmp_path), "--no-input")
    assert "cannot write" in complaint("genconfig", str(tmp_path / "none" / "x.toml"), "--no-input")


def test_invalid_settings_are_refused_before_a_file_is_written(tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    said = complaint("genconfig", str(file), "--no-input", "--origin", "app.example", "--engine", "amqp://h")
    assert "door.origins contains 'app.example'" in said
    assert "engine.url begins with 'amqp'" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "host", "proxies"),
    [
        ((), "127.0.0.1", ["127.0.0.1", "::1"]),  # a proxy on this machine
        (("--proxy", "10.0.0.7"), "0.0.0.0", ["10.0.0.7"]),
        (("--proxy", "127.0.0.1"), "127.0.0.1", ["127.0.0.1"]),
        (("--tls-cert", "c.pem", "--tls-key", "k.pem"), "0.0.0.0", []),
    ],
)
def test_it_listens_to_whom_does_tls(flags: tuple[str, ...], host: str, proxies: list[str], tmp_path: Path) -> None:
    made = generated(tmp_path / "greendot.toml", *flags)
    assert (made["server"]["host"], made["door"]["trusted_proxies"]) == (host, proxies)


def test_it_can_be_printed() -> None:
    result = call("genconfig", "-", "--no-input")
    assert len(tomllib.loads(result.output)["auth"]["secret"]) == 64


def test_in_a_terminal_it_asks_for_what_was_not_given(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "greendot", "genconfig", "greendot.toml", "--audience", "chat"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env=clean(), stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    os.close(theirs)
    try:
        # Answers in order: pages, names, proxy, Redis, store, folder. An empty line accepts the default.
        os.write(ours, b"https://a.example, https://b.example\n\n-\nredis://10.0.0.5\n\n\ncert.pem\n\n")
        said, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        os.close(ours)
    assert process.returncode == 0, said
    assert b"Origins of pages that may connect" in said
    made = tomllib.loads((tmp_path / "greendot.toml").read_text())
    assert made["door"] == {"origins": ["https://a.example", "https://b.example"], "hosts": [], "trusted_proxies": []}
    assert (made["tls"], made["engine"]) == ({"cert": "cert.pem"}, {"url": "redis://10.0.0.5"})
    assert (made["server"]["data_dir"], made["auth"]["audience"]) == ("/var/lib/greendot", "chat")
