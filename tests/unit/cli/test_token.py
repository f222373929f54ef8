"""`greendot token`: user, lifetime and secret of the token."""

from __future__ import annotations

from pathlib import Path

import jwt
import pytest

from cli.calls import SECRET, call, complaint
from greendot.cli.token import parse_ttl
from greendot.errors import ConfigError


def claims(*arguments: str, **environment: str) -> dict[str, object]:
    result = call("token", *arguments, **environment)
    assert result.exit_code == 0, result.output
    assert result.output.count("\n") == 1
    read: dict[str, object] = jwt.decode(result.output.strip(), SECRET, algorithms=["HS256"])
    return read


def test_a_token_has_user_and_expiry_and_no_claim_that_was_not_requested() -> None:
    made = claims("alice")
    assert made.keys() == {"sub", "iat", "exp", "tenant"}
    assert (made["sub"], made["tenant"]) == ("alice", "default")
    assert abs(float(str(made["exp"])) - float(str(made["iat"])) - 3_600) <= 0.5


def test_a_token_carries_what_was_asked_for() -> None:
    made = claims("alice", "--tenant", "acme", "--name", "Ada é", "--room", "club", "--room", "team-*", "--ttl", "2d")
    assert made["tenant"] == "acme"
    assert made["name"] == "Ada é"
    assert made["rooms"] == ["club", "team-*"]
    assert abs(float(str(made["exp"])) - float(str(made["iat"])) - 172_800) <= 0.5


def test_a_dev_servers_secret_is_used_where_none_is_given(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    assert claims("alice", secret="", GREENDOT_SERVER_DATA_DIR=str(tmp_path))["sub"] == "alice"


def test_without_a_secret_the_token_command_names_the_remedy(tmp_path: Path) -> None:
    said = complaint("token", "alice", secret="", GREENDOT_SERVER_DATA_DIR=str(tmp_path))
    assert "GREENDOT_AUTH_SECRET" in said
    assert "greendot serve --dev" in said


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "USER"),
        ([""], "user ''"),
        (["a b"], "user 'a b'"),
        (["alice", "--tenant", "a/b"], "tenant 'a/b'"),
        (["alice", "--room", "a b"], "rooms"),
        (["alice", "--name", "x" * 201], "name"),
        (["alice", "--ttl", "soon"], "--ttl 'soon'"),
        (["alice", "--ttl", "-1h"], "--ttl '-1h'"),
    ],
)
def test_what_no_server_would_take_is_refused(arguments: list[str], word: str) -> None:
    assert word in complaint("token", *arguments)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("1h", 3600), ("30d", 2_592_000), ("0.5h", 1800), (" 1h ", 3600)],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_ttl(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "1w", "1 h", "1e9", "h", "-1s", "9" * 400, "36501d"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--ttl .* is not a duration"):
        parse_ttl(text)


def test_keys_that_only_verify_make_no_tokens(tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text('[auth]\njwks_url = "https://id.example.org/keys"\n')
    environment = {"secret": "", "GREENDOT_SERVER_DATA_DIR": str(tmp_path)}
    assert "no secret found to sign the token with" in complaint("token", "alice", "--config", str(file), **environment)
    file.write_text(
        '[auth]\naudience = "chat"\n[[auth.keys]]\nkid = "k1"\nalg = "HS512"\nsecret = "' + "x" * 64 + '"\n'
    )
    made = call("token", "alice", "--config", str(file), **environment).output.strip()
    assert jwt.get_unverified_header(made)["kid"] == "k1"
    assert jwt.decode(made, "x" * 64, algorithms=["HS512"], audience="chat")["sub"] == "alice"
