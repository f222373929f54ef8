"""Token keys made from the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from greendot.app.tokens import make_tokens
from greendot.auth.tokens import Tokens
from greendot.config import Auth
from greendot.errors import ConfigError
from signers import ALGORITHMS, SECRETS, signer

NOW = 1_800_000_000_000
CLAIMS = {"sub": "ann", "exp": NOW // 1000 + 3_600}


def configured(**auth: Any) -> Tokens:
    return make_tokens(msgspec.convert(auth, Auth), lambda: 0.0)


@pytest.mark.parametrize("alg", ALGORITHMS)
@pytest.mark.parametrize("where", ["here", "in a file"])
def test_a_key_is_given_in_the_settings_or_in_a_file(alg: str, where: str, tmp_path: Path) -> None:
    key = signer(alg).setting("k1")
    if where == "in a file":
        (tmp_path / "key").write_text((key.pop("secret", "") or key.pop("public_key", "")) + "\n")
        key["file"] = str(tmp_path / "key")
    assert configured(keys=[key]).read(signer(alg).sign("k1", **CLAIMS), NOW).user == "ann"


def test_all_fields_of_a_key_setting_take_effect() -> None:
    key = signer("RS256").setting("k1", tenant="acme", not_after="2027-01-15T08:30:00Z")
    grants = configured(keys=[key]).read(signer("RS256").sign("k1", **CLAIMS), NOW)
    assert (grants.tenant, grants.expires_at) == ("acme", 1_800_001_800_000)
    with pytest.raises(Exception, match="retired"):
        configured(keys=[key | {"retired": True}]).read(signer("RS256").sign("k1", **CLAIMS), NOW)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ({"alg": "HS256", "secret": "short secret"}, "at least 32"),
        ({"alg": "HS512", "secret": SECRETS["HS256"]}, "at least 64"),
        ({"alg": "HS256", "secret": signer("RS256").pem}, "PEM"),
        ({"alg": "RS256", "public_key": "garbage garbage"}, "PEM"),
        ({"alg": "RS256", "public_key": signer("ES256").pem}, "RSA"),
        ({"alg": "ES256", "file": "/nowhere/to/be/found"}, "No such file"),
    ],
)
def test_an_invalid_key_is_reported_by_its_kid_without_its_value(key: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        configured(keys=[{"kid": "k1"} | key])
    assert "'k1'" in str(caught.value)
    for part in ("short secret", SECRETS["HS256"], "garbage garbage"):
        assert part not in str(caught.value)


def test_keys_are_fetched_only_where_there_is_an_address() -> None:
    assert configured(secret="x" * 32).remote is None
    assert configured(jwks_url="https://id.example.org/keys").remote is not None
