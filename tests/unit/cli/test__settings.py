"""Sources of the command line's settings, and the settings it shows and keeps."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from cli.calls import SECRET, call, complaint
from greendot.cli._settings import as_running_server, dev_value, settings_from
from greendot.config import Auth, ServerSection, Settings
from greendot.errors import ConfigError


def kept_in(folder: Path) -> Settings:
    return Settings(server=ServerSection(data_dir=str(folder)))


def test_the_settings_are_shown_with_where_they_came_from_but_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text("[presence]\ngrace_s = 12\n[api]\nkey = 'hush'")
    result = call("check-config", "--config", str(file), GREENDOT_LIMITS_ROOMS="7")
    assert result.exit_code == 0
    assert "grace_s = 12.0\n" in result.output
    assert "rooms = 7\n" in result.output
    assert 'secret = "(set)"\n' in result.output
    assert SECRET not in result.output
    assert "hush" not in result.output
    assert result.output.endswith("The settings are valid.\n")


def test_what_is_secret_about_webhooks_is_not_shown(tmp_path: Path) -> None:
    secret = "the secret of a webhook, which nobody should read"
    hook = f"url = 'https://app.example/token-in-the-path'\nsecret = '{secret}'\nsecret_before = '{secret}'"
    file = tmp_path / "greendot.toml"
    file.write_text(f"[webhooks]\n{hook}\n[tenants.acme.webhooks]\n{hook}")
    result = call("check-config", "--config", str(file))
    assert result.exit_code == 0
    assert 'url = "https://app.example/…"\n' in result.output
    assert 'secret_before = "(set)"\n' in result.output
    assert secret not in result.output
    assert "token-in-the-path" not in result.output


def test_keys_are_shown_without_their_secrets_and_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text('[[auth.keys]]\nkid = "k1"\nalg = "HS256"\nsecret = "' + "hush" * 8 + '"\n')
    result = call("check-config", "--config", str(file))
    assert result.exit_code == 0
    assert '"kid":"k1"' in result.output
    assert "hush" not in result.output
    file.write_text('[[auth.keys]]\nkid = "k1"\nalg = "RS256"\npublic_key = "hush"\n')
    said = complaint("check-config", "--config", str(file))
    assert "'k1'" in said
    assert "hush" not in said


def test_wrong_settings_are_explained(tmp_path: Path) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text("[presence]\ngrace = 12")
    assert "Did you mean 'grace_s'?" in complaint("check-config", "--config", str(file))
    assert "No such file" in complaint("check-config", "--config", str(tmp_path / "missing.toml"))


def test_the_password_of_the_engine_is_not_shown_and_a_wrong_url_is_explained() -> None:
    result = call("check-config", GREENDOT_ENGINE_URL="redis://ann:hush@localhost:6379/1")
    assert 'url = "redis://localhost:6379/1"\n' in result.output
    assert "hush" not in result.output
    assert "ann:" not in result.output
    said = complaint("check-config", GREENDOT_ENGINE_URL="redis://:hu/sh@localhost")
    assert "%2F" in said
    assert "hu" not in said


def test_a_flag_that_was_not_given_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENDOT_SERVER_PORT", "1234")
    assert settings_from(None, {"server": {"port": None, "host": None}}).server.port == 1234
    assert settings_from(None, {"server": {"port": 0, "host": None}}).server.port == 0


def test_a_generated_value_is_kept_for_its_owner_only(tmp_path: Path) -> None:
    settings = kept_in(tmp_path / "new" / "folder")
    value, new = dev_value(settings, "secret")
    assert new
    assert len(value) >= 32
    path = tmp_path / "new" / "folder" / "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().strip() == value
    assert dev_value(settings, "secret") == (value, False)
    assert dev_value(settings, "api-key")[0] != value


def test_an_empty_file_is_filled_and_stays_private(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0o644)
    value, new = dev_value(kept_in(tmp_path), "secret")
    assert new
    assert value
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_a_place_where_nothing_can_be_kept_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot save the generated secret in .*file/secret"):
        dev_value(kept_in(tmp_path / "file"), "secret")


def test_the_dev_secret_is_used_only_where_no_other_is_set(tmp_path: Path) -> None:
    settings = kept_in(tmp_path)
    assert as_running_server(settings).auth.secret == ""
    value, _ = dev_value(settings, "secret")
    assert as_running_server(settings).auth.secret == value
    own = msgspec.structs.replace(settings, auth=Auth(SECRET))
    assert as_running_server(own).auth.secret == SECRET


def test_a_dev_secret_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    with pytest.raises(ConfigError, match="secret"):
        as_running_server(kept_in(tmp_path))
    (tmp_path / "secret").rmdir()
    (tmp_path / "secret").write_bytes(b"\xff" * 40)
    for read in (as_running_server, lambda settings: dev_value(settings, "secret")):
        with pytest.raises(ConfigError, match="secret"):
            read(kept_in(tmp_path))
