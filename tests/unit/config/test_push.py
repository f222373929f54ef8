"""Invalid push settings: each is reported with the setting's name before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from greendot.app.config_checks import CHECKS
from greendot.config import Settings, load
from greendot.errors import ConfigError

SECRET = "s" * 32


def given(text: str, folder: Path) -> Settings:
    file = folder / "greendot.toml"
    file.write_text(text)
    return load(file, {}, {}, CHECKS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[push]\nfcm_credentials_file = 'nowhere.json'",
            "push.fcm_credentials_file: cannot read nowhere.json: No such file",
        ),
        ("[push]\napns_key_file = 'key.p8'", "push.apns_key_id, push.apns_team_id, push.apns_topic are not"),
        ("[push]\nwebpush_key_file = 'k'", "push.webpush_subject must begin with mailto:"),
        ("[push]\nwebhook_url = 'https://app.example'", "push.webhook_secret must have at least 32"),
        (f"[push]\nwebhook_url = 'http://app.example'\nwebhook_secret = '{SECRET}'", "push.allow_private"),
        ("[push]\nallow_private = ['inside']", "push.allow_private contains 'inside'"),
        ("[push]\nca_file = 'nowhere.pem'\ndry_run = true", "push.ca_file: cannot read nowhere.pem"),
        ("[push]\nleast = 'some'", "push.least is 'some' but must be one of low, normal, high, critical"),
        ("[push]\nper_hour = -1", "push.per_hour is -1"),
        ("[push.kinds.a]\nhold_s = 3", "no setting 'hold_s'"),
        ("[push.kinds.'a b']\nenabled = true", "push.kinds: the name"),
        ("[tenants.acme.push]\nkeep_s = 5", "keep_s applies to all tenants. Set it in [push]"),
        (
            "[tenants.acme.push]\nfcm_credentials_file = 'nowhere'",
            "tenants.acme.push.fcm_credentials_file: cannot read nowhere",
        ),
    ],
)
def test_an_error_names_its_setting(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        given(text, tmp_path)
    assert said in str(error.value)


def test_a_missing_file_of_all_tenants_is_reported_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        given("[push]\nfcm_credentials_file = '/nowhere'\n[tenants.a.push]\nper_hour = 5\n[tenants.b]\n", tmp_path)
    assert error.value.mistakes == ("push.fcm_credentials_file: cannot read /nowhere: No such file or directory",)


def test_a_file_that_is_not_a_key_is_refused_without_its_content(tmp_path: Path) -> None:
    file = tmp_path / "account.json"
    file.write_text('{"private_key": "hush hush"}')
    with pytest.raises(ConfigError) as error:
        given(f"[push]\nfcm_credentials_file = '{file}'", tmp_path)
    assert "push.fcm_credentials_file" in str(error.value)
    assert "hush" not in str(error.value)


def test_a_tenant_uses_the_common_push_settings_except_those_of_its_section(tmp_path: Path) -> None:
    settings = given(
        "[push]\ndry_run = true\nper_hour = 5\nconcurrency = 7\n[push.kinds.a]\nenabled = false\n"
        "[tenants.acme.push]\nper_hour = 9\n[tenants.off.push]\nenabled = false\n[tenants.plain.limits]\nrooms = 3\n",
        tmp_path,
    )
    assert [settings.push_of(name).per_hour for name in ("acme", "plain", "any")] == [9, 5, 5]
    assert [settings.push_of(name).pushes for name in ("acme", "off", "plain", "any")] == [True, False, True, True]
    assert not settings.push_of("acme").kinds["a"].enabled


def test_without_a_provider_nothing_is_pushed() -> None:
    assert not Settings().pushes
    assert not load(None, {}, {"push": {"enabled": False, "dry_run": True}}).pushes
    assert load(None, {}, {"push": {"dry_run": True}}).pushes
