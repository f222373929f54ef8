"""No file of the project contains a private key, a token or a password of a real service."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
from functools import cache
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

ROOT = Path(__file__).parents[2]
KINDS = {
    "private key": re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d:"),
    "GitHub token": re.compile(r"\b(?:gh[oprsu]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40,})\b"),
    "GitLab token": re.compile(r"glpat-[A-Za-z0-9_-]{20,}\b"),
    "AWS key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "Google API key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b"),
    "Slack token": re.compile(r"xox[abeoprs]-[0-9A-Za-z-]{10,}"),
    "Stripe key": re.compile(r"\b[rs]k_live_[0-9A-Za-z]{16,}\b"),
    "npm token": re.compile(r"npm_[A-Za-z0-9]{36}\b"),
    "Docker token": re.compile(r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}"),
    "Hugging Face token": re.compile(r"\bhf_[A-Za-z]{30,}\b"),
    "key of an AI service": re.compile(r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}\b"),
    "SendGrid key": re.compile(r"SG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{40,}"),
    "Greendot API key": re.compile(r"gd_[0-9A-Za-z]{12}_[0-9A-Za-z]{43}\b"),
    "PyPI token": re.compile(r"pypi-AgE[A-Za-z0-9_-]{40,}"),
    "JSON Web Token": re.compile(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}"),
    "password in a URL": re.compile(r"\w://[^\s:/@'\"{}$]{0,40}:(?=[^@\s]*\d)[A-Za-z0-9_.~%!&*+=-]{10,80}@[a-z0-9]"),
    "secret that is set": re.compile(
        r"""(?i)(?:secret|(?:api|private|access|signing)_?key|password|passwd|auth_token)["']?\s*[:=]\s*"""
        r"""["']?([A-Za-z0-9+/_-]{32,}={0,2})(?=["'\s,;]|$)"""
    ),
}
# Keys and passwords of tests and examples, which open nothing: file and kind.
FIXTURES: dict[str, set[str]] = {
    "clients/server/src/tokens.ts": {"private key"},  # the frame of any key
    "clients/server/test/server/sdk.test.ts": {"private key"},  # a key that the test makes
    "clients/server/test/unit/tokens.test.ts": {"private key"},
    "docs/cli.md": {"Greendot API key"},  # an example of a key
    "tests/deployed/charts/shared.yaml": {"secret that is set"},  # a checksum
    "tests/deployed/charts/single.yaml": {"secret that is set"},
    "tests/deployed/charts/trial.values.yaml": {"secret that is set"},
    "tests/deployed/charts/trial.yaml": {"secret that is set"},
    "tests/deployed/test_chart.py": {"secret that is set"},
    "tests/e2e/test_planted.py": {"secret that is set"},
    "tests/unit/push/providers/test_signing.py": {"private key"},  # the head of a key that the test makes
}
GUESSED = ("password in a URL", "secret that is set")  # by the words around them
SAMPLES = {
    "private key": "-----BEGIN EC " + "PRIVATE KEY-----",
    "GitHub token": "ghp_" + "a1B2" * 9,
    "GitLab token": "glpat-" + "x" * 20,
    "AWS key": "AKIA" + "A1" * 8,
    "Google API key": "AIza" + "b" * 35,
    "Slack token": "xoxb-" + "1234567890",
    "Stripe key": "sk_live_" + "q" * 24,
    "npm token": "npm_" + "z" * 36,
    "Docker token": "dckr_pat_" + "k" * 27,
    "Hugging Face token": "hf_" + "h" * 34,
    "key of an AI service": "sk-" + "proj-" + "o9" * 24,
    "SendGrid key": "SG." + "d" * 22 + "." + "e" * 43,
    "Greendot API key": "gd_" + "f" * 12 + "_" + "g" * 43,
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


def found_in_file(path: Path) -> dict[str, str]:
    """Return the secrets in a file, by kind. Text in UTF-16, and keys between binary data, are found too."""
    data = path.read_bytes()
    found = found_in(data.replace(b"\0", b"").decode(errors="replace"))
    # Without NULs, binary data may look like a password by chance.
    return {kind: text for kind, text in found.items() if b"\0" not in data or kind not in GUESSED}


def scan(root: Path, names: list[str]) -> list[str]:
    """Return a line for each secret that is not a listed fixture."""
    return [
        f"{name}: {kind}: {text[:80]}"
        for name in names
        for kind, text in found_in_file(root / name).items()
        if kind not in FIXTURES.get(name, ())
    ]


def test_no_file_contains_a_secret() -> None:
    assert len(files()) > 1_000
    assert scan(ROOT, files()) == [], "remove it, or list the file in FIXTURES if it opens nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_of_each_kind_is_found(kind: str) -> None:
    assert kind in found_in(f"before\n{SAMPLES[kind]}\nbehind")


def pem(form: serialization.PrivateFormat, password: bytes | None = None) -> str:
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(serialization.Encoding.PEM, form, how).decode()


def planted() -> dict[str, tuple[str, bytes]]:
    """Return files with secrets that were made just now, as they get into repositories: kind and content by name."""
    key = pem(serialization.PrivateFormat.PKCS8)
    token = jwt.encode({"sub": "alice"}, secrets.token_urlsafe(48), algorithm="HS256")
    word, password = secrets.token_urlsafe(32), f"Tr0ub4dor-{secrets.token_hex(4)}"
    url = f"postgresql://app:{password}@db.internal:5432/app"
    text = {
        "tls.key": ("private key", key),
        "ec.pem": ("private key", pem(serialization.PrivateFormat.TraditionalOpenSSL)),
        "id_ecdsa": ("private key", pem(serialization.PrivateFormat.OpenSSH)),
        "encrypted.pem": ("private key", pem(serialization.PrivateFormat.PKCS8, b"a password")),
        "service-account.json": ("private key", json.dumps({"type": "service_account", "private_key": key})),
        "notes.md": ("JSON Web Token", f"Try `Authorization: Bearer {token}` today."),
        "page.js": ("JSON Web Token", f"connect('wss://rt.example.com/v1/connect?token={token}')"),
        "compose.yml": ("password in a URL", f"environment:\n  STORE: {url}\n"),
        "app.py": ("password in a URL", f'URL = "{url.replace("postgresql", "redis")}"'),
        "escaped.env": ("password in a URL", "AMQP=amqp://app:p%40ss" + "w0rd%21x@queue.internal/"),
        ".env": ("secret that is set", f"GREENDOT_WEBHOOKS_SECRET={word}\n"),
        "greendot.toml": ("secret that is set", f'[auth]\nsecret = "{word}"\n'),
        "settings.json": ("secret that is set", json.dumps({"api_key": word})),
        "vapid.yaml": ("secret that is set", f"private_key: {word}\n"),
        "keys.csv": ("Greendot API key", f"shop,gd_{secrets.token_hex(6)}_{secrets.token_hex(22)[:43]}\n"),
    }
    found = {name: (kind, content.encode()) for name, (kind, content) in text.items()}
    found["windows.txt"] = ("private key", key.encode("utf-16"))
    found["memory.dump"] = ("private key", b"\0\xff" * 100 + key.encode() + b"\0" * 10)
    return found


def test_planted_secrets_are_found_in_every_kind_of_file(tmp_path: Path) -> None:
    files_ = planted()
    for name, (_, content) in files_.items():
        (tmp_path / name).write_bytes(content)
    found = {tuple(line.split(": ")[:2]) for line in scan(tmp_path, [*files_])}
    assert {(name, kind) for name, (kind, _) in files_.items()} <= found


def test_placeholders_and_references_are_no_secrets() -> None:
    for text in (
        "redis://user:PASSWORD@host:6379",
        "postgresql://app:${PASSWORD}@db/app",
        "secret: ${{ secrets.GITHUB_TOKEN }}",
        "GREENDOT_AUTH_SECRET=$(openssl rand -hex 32)",
        "password = os.environ['PASSWORD']",
        "-----BEGIN PUBLIC KEY-----",
    ):
        assert found_in(text) == {}, text


def test_listed_fixtures_are_still_there() -> None:
    for name, kinds in FIXTURES.items():
        assert kinds <= found_in((ROOT / name).read_text()).keys(), name
