"""Invalid token settings: each is reported at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from greendot.config import Auth, load
from greendot.config.auth import check_auth
from greendot.config.fields import refuse
from greendot.errors import ConfigError

SECRET = {"kid": "a", "alg": "HS256", "secret": "x" * 32}
PUBLIC = {"kid": "b", "alg": "RS256", "public_key": "-----BEGIN…"}


def check(**auth: Any) -> None:
    refuse(check_auth(msgspec.convert(auth, Auth)))


def test_what_is_good_is_taken() -> None:
    check()
    check(secret="x" * 32, keys=[SECRET, PUBLIC], algorithms=["HS256", "RS256"], jwks_url="https://id.example.org/keys")
    check(secret="x" * 32, algorithms=["EdDSA"], jwks_url="http://127.0.0.1:9000/keys")  # the secret signs no tokens
    for host in ("localhost", "127.8.9.1:80", "[::1]:9000"):
        check(jwks_url=f"http://{host}/keys")


@pytest.mark.parametrize(
    ("auth", "why"),
    [
        ({"secret": "short"}, "32 characters"),
        ({"keys": [SECRET, SECRET]}, "two keys have the kid 'a'"),
        ({"keys": [{"kid": "a", "alg": "HS256"}]}, "exactly one of secret, public_key and file"),
        ({"keys": [SECRET | {"file": "f"}]}, "exactly one of secret, public_key and file"),
        ({"keys": [SECRET | {"alg": "RS256"}]}, "has a secret. Set public_key"),
        ({"keys": [PUBLIC | {"alg": "HS256"}]}, "has a public_key. Set secret"),
        ({"keys": [PUBLIC], "algorithms": ["HS256"]}, "does not list"),
        ({"keys": [SECRET | {"tenant": "a/b"}]}, "not a valid id"),
        ({"keys": [SECRET | {"not_after": "2030-01-01T00:00:00"}]}, "time zone"),
        ({"jwks_url": "http://id.example.org/keys"}, "https://"),
        ({"jwks_url": "http://127.0.0.1.evil.com/keys"}, "https://"),
        ({"jwks_url": "http://10.0.0.1/keys"}, "https://"),
        ({"jwks_url": "file:///etc/passwd"}, "https://"),
        ({"jwks_url": "https:///keys"}, "https://"),
        ({"jwks_url": "https://[::1/keys"}, "not a valid URL"),
        ({"jwks_url": "https://a:99999/keys"}, "not a valid URL"),
        ({"jwks_url": "https://user:pass@id.example.org/keys"}, "has a user or password"),
        ({"jwks_url": "https://id.example.org/keys", "algorithms": ["HS256"]}, "accepts none"),
    ],
)
def test_invalid_auth_settings_are_refused_with_the_reason(auth: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        check(**auth)
    assert "pass@" not in str(caught.value)
    assert "xxxx" not in str(caught.value)


def test_they_come_from_a_file_and_lists_from_the_environment_too(tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text(
        '[auth]\naudience = "chat"\n[[auth.keys]]\nkid = "a"\nalg = "HS256"\nsecret = "' + "x" * 32 + '"\n'
        "not_after = 2030-01-31T12:00:00Z\n"
    )
    auth = load(file, {"GREENDOT_AUTH_ALGORITHMS": "HS256, EdDSA", "GREENDOT_AUTH_LEEWAY_S": "5"}, {}).auth
    assert (auth.audience, auth.algorithms, auth.leeway_s) == ("chat", ("HS256", "EdDSA"), 5.0)
    assert auth.keys[0].kid == "a"
    assert auth.keys[0].not_after is not None


@pytest.mark.parametrize(
    "text",
    [
        '[[auth.keys]]\nkid = "a"\nalg = "none"\nsecret = "top secret"\n',
        '[[auth.keys]]\nkid = "a"\nalg = "RS512"\nsecret = "top secret"\n',
        '[[auth.keys]]\nalg = "HS256"\nsecret = "top secret"\n',
        '[[auth.keys]]\nkid = "a"\nalg = "HS256"\nsecrets = "top secret"\n',
        '[auth]\nalgorithms = ["none"]\n',
        '[auth]\nkeys = "top secret"\n',
        "[auth]\njwks_refresh_s = 0\n",
    ],
)
def test_an_invalid_file_is_refused_without_its_secrets(text: str, tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="auth") as caught:
        load(file, {}, {})
    assert "top secret" not in str(caught.value)
