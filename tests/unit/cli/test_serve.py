"""Refusals of `greendot serve` before it listens. tests/e2e/test_process.py covers the running server."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.calls import complaint


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", "127.0.0.1.example.com"])
def test_dev_mode_on_any_address_but_loopback_refuses_an_api_key_that_can_be_guessed(host: str) -> None:
    message = complaint("serve", "--dev", "--host", host, GREENDOT_API_KEY="short")
    assert "api.key is shorter than 32 characters" in message
    assert "/dev/null/greendot" in complaint("serve", "--dev", "--host", "localhost", GREENDOT_API_KEY="short")


def test_a_gate_token_that_can_be_guessed_is_refused() -> None:
    assert "server.dev_gate is shorter than 32" in complaint("serve", "--dev", GREENDOT_SERVER_DEV_GATE="open sesame")


def test_dev_alone_is_serve_in_dev_mode() -> None:
    assert "server.port" in complaint("--dev", "--port", "-1")


def test_several_workers_with_an_explicit_memory_engine_are_refused() -> None:
    for call in (["serve", "--workers", "2"], ["serve", "--dev", "--workers", "2"]):
        message = complaint(*call, "--engine", "memory")
        assert "2 workers cannot share the memory engine" in message
        assert "Leave out --engine" in message


def test_a_missing_secret_is_refused_with_the_remedy() -> None:
    said = complaint("serve", "--port", "0", secret="")
    for word in ("auth.secret", "GREENDOT_AUTH_SECRET", "openssl rand -hex 32", "greendot serve --dev"):
        assert word in said


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--port", "http"], "--port"),
        (["--port", "-1"], "server.port"),
        (["--port", "65536"], "server.port"),
        (["--workers", "0"], "server.workers"),
        (["--engine", "rabbit://localhost"], "engine.url"),
        (["--store", "greendot.db"], "store.url"),
        (["--config", "/nowhere/greendot.toml"], "/nowhere/greendot.toml"),
    ],
)
def test_a_wrong_flag_is_named(flags: list[str], word: str) -> None:
    assert word in complaint("serve", *flags)


def test_all_errors_that_prevent_a_start_are_reported_in_three_rounds(tmp_path: Path) -> None:
    """The rounds are: values, then relations, then missing settings and unusable files."""
    file = tmp_path / "greendot.toml"
    values, relation = "[server]\nport = 70000\n", "[typing]\nttl_s = 1\n"
    files = (
        '[tls]\ncert = "/nowhere/cert.pem"\n[webhooks]\nca_file = "/nowhere/ca.pem"\n[engine]\nurl = "redis://h/x"\n'
    )
    file.write_text(values + relation + files)
    said = complaint("serve", "--config", str(file), "--workers", "0", secret="")
    assert said.startswith("2 settings are wrong:")
    assert "server.port is 70000" in said
    assert "server.workers is 0" in said
    file.write_text(relation + files)
    assert complaint("serve", "--config", str(file), secret="").startswith("typing.throttle_s (2)")
    file.write_text(files)
    said = complaint("serve", "--config", str(file), secret="")
    assert said.startswith("4 settings are wrong:")
    for words in (
        "tls.cert: cannot read /nowhere/cert.pem",
        "webhooks.ca_file: cannot read /nowhere/ca.pem",
        "engine.url has 'x' in place of a database number",
        "auth.secret is not set",
    ):
        assert words in said
