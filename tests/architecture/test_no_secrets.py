"""No file of the project contains a private key, a token or a password of a real service."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LARGEST = 4 * 1024 * 1024  # bytes of a file that is read
KINDS = {
    "private key": re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    "GitHub token": re.compile(r"\b(?:gh[oprsu]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40,})\b"),
    "GitLab token": re.compile(r"\bglpat-[A-Za-z0-9_-]{20,}\b"),
    "AWS key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "Google API key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b"),
    "Slack token": re.compile(r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}"),
    "Stripe key": re.compile(r"\b[rs]k_live_[0-9A-Za-z]{16,}\b"),
    "npm token": re.compile(r"\bnpm_[A-Za-z0-9]{36}\b"),
    "PyPI token": re.compile(r"\bpypi-AgE[A-Za-z0-9_-]{40,}"),
    "JSON Web Token": re.compile(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}"),
    "password in a URL": re.compile(r"\w://[^\s:/@'\"{}$]{0,40}:(?=[^@\s]*\d)[A-Za-z0-9_.~-]{10,80}@[a-z0-9]"),
    "secret that is set": re.compile(
        r"""(?i)(?:secret|api_?key|password|passwd|auth_token)["']?\s*[:=]\s*["']?([A-Za-z0-9+/_-]{32,})(?=["'\s,]|$)"""
    ),
}
# Keys and passwords of tests and examples, which open nothing: file and kind.
FIXTURES: dict[str, set[str]] = {
    "clients/server/src/tokens.ts": {"private key"},  # the frame of any key
    "clients/server/test/server/sdk.test.ts": {"private key"},  # a key that the test makes
    "clients/server/test/unit/tokens.test.ts": {"private key"},
    "tests/deployed/charts/shared.yaml": {"secret that is set"},  # a checksum
    "tests/deployed/charts/single.yaml": {"secret that is set"},
    "tests/deployed/charts/trial.values.yaml": {"secret that is set"},
    "tests/deployed/charts/trial.yaml": {"secret that is set"},
    "tests/deployed/test_chart.py": {"secret that is set"},
    "tests/e2e/test_planted.py": {"secret that is set"},
    "tests/unit/push/providers/test_signing.py": {"private key"},  # the head of a key that the test makes
}
SAMPLES = {
    "private key": "-----BEGIN EC " + "PRIVATE KEY-----",
    "GitHub token": "ghp_" + "a1B2" * 9,
    "GitLab token": "glpat-" + "x" * 20,
    "AWS key": "AKIA" + "A1" * 8,
    "Google API key": "AIza" + "b" * 35,
    "Slack token": "xoxb-" + "1234567890",
    "Stripe key": "sk_live_" + "q" * 24,
    "npm token": "npm_" + "z" * 36,
    "PyPI token": "pypi-AgE" + "c" * 50,
    "JSON Web Token": ".".join(["eyJhbGciOiJIUzI1NiJ9", "eyJzdWIiOiJhbGljZSJ9", "s" * 43]),
    "password in a URL": "redis://:" + "correct-horse-7" + "@cache.internal:6379",
    "secret that is set": "GREENDOT_AUTH_SECRET=" + "Zm9vYmFy" * 5,
}


@cache
def files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def found_in(text: str) -> dict[str, str]:
    """Return the secrets in a text, by kind."""
    return {kind: match[0] for kind, pattern in KINDS.items() if (match := pattern.search(text)) is not None}


def test_no_file_contains_a_secret() -> None:
    assert len(files()) > 1_000
    found = []
    for name in files():
        path = ROOT / name
        data = path.read_bytes() if path.stat().st_size <= LARGEST else b""
        if b"\0" in data:
            continue
        kinds = found_in(data.decode(errors="replace"))
        found += [f"{name}: {kind}: {text[:80]}" for kind, text in kinds.items() if kind not in FIXTURES.get(name, ())]
    assert found == [], "remove it, or list the file in FIXTURES if it opens nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_of_each_kind_is_found(kind: str) -> None:
    assert kind in found_in(f"before\n{SAMPLES[kind]}\nbehind")


def test_listed_fixtures_are_still_there() -> None:
    for name, kinds in FIXTURES.items():
        assert kinds <= found_in((ROOT / name).read_text()).keys(), name
