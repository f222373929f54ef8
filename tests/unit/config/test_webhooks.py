"""Refusal of webhook settings that would send nothing, or send events to a wrong address."""

from __future__ import annotations

from pathlib import Path

import pytest

from greendot.config import Settings, load
from greendot.config.webhooks import ALL_TYPES
from greendot.errors import ConfigError
from greendot.protocol.webhooks import TYPES

SECRET = "s" * 32


def loaded(text: str, tmp_path: Path, **environment: str) -> Settings:
    file = tmp_path / "greendot.toml"
    file.write_text(text)
    return load(file, environment, {})


def refused(text: str, tmp_path: Path, **environment: str) -> str:
    with pytest.raises(ConfigError) as error:
        loaded(text, tmp_path, **environment)
    return str(error.value)


def test_all_types_there_are_can_be_asked_for() -> None:
    assert ALL_TYPES == TYPES


def test_the_common_hook_is_that_of_tenant_default_only(tmp_path: Path) -> None:
    settings = loaded(
        f"""
        [webhooks]
        url = "https://app.example/hook"
        secret = "{SECRET}"
        [tenants.acme.webhooks]
        url = "https://acme.example/"
        secret = "{SECRET}2"
        events = ["room.message"]
        [tenants.plain.limits]
        rooms = 3
        [tenants.default.limits]
        rooms = 4
        """,
        tmp_path,
    )
    assert {tenant: hook.url for tenant, hook in settings.hooks.items()} == {
        "default": "https://app.example/hook",
        "acme": "https://acme.example/",
    }
    assert settings.hooks["acme"].events == ("room.message",)
    assert settings.tenants["plain"].limits.rooms == 3


def test_no_hook_is_the_default() -> None:
    assert Settings().hooks == {}


def test_the_environment_sets_lists_too() -> None:
    environment = {
        "GREENDOT_WEBHOOKS_URL": "http://10.0.0.5/hook",
        "GREENDOT_WEBHOOKS_SECRET": SECRET,
        "GREENDOT_WEBHOOKS_EVENTS": "room.message, user.online",
        "GREENDOT_WEBHOOKS_ALLOW_PRIVATE": "10.0.0.0/8,fd00::/8",
    }
    hook = load(None, environment, {}).webhooks
    assert hook.events == ("room.message", "user.online")
    assert hook.allow_private == ("10.0.0.0/8", "fd00::/8")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("app.example/hook", "must begin with https://"),
        ("ftp://app.example/", "must begin with https://"),
        ("file:///etc/passwd", "must begin with https://"),
        ("gopher://127.0.0.1:6379/_FLUSHALL", "must begin with https://"),
        ("https://", "no host"),
        ("https:///hook", "no host"),
        ("https://app.example:0/", "no host"),
        ("https://app.example:99999/", "is not a valid URL"),
        ("https://[::1/", "is not a valid URL"),
        ("https://good.example@10.0.0.1/", "user or password"),
        ("https://user:pass@app.example/", "user or password"),
        ("https://app.example/#part", "fragment after #"),
        ("https://app.example/a b", "printable ASCII"),
        ("https://app.example\\\\@10.0.0.1/", "printable ASCII"),
        ("https://exämple.com/", "printable ASCII"),
        ("https://127.0.0.1%2f.example/", "% in its host"),
        ("https://app.example/" + "x" * 3000, "at most"),
        ("http://app.example/", "could be read in transit"),
    ],
)
def test_urls_that_cannot_or_should_not_be_called_are_refused_without_repeating_them(
    tmp_path: Path, url: str, words: str
) -> None:
    said = refused(f'[webhooks]\nurl = "{url}"\nsecret = "{SECRET}"', tmp_path)
    assert words in said
    assert "pass" not in said.replace("password", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('url = "https://a.example/"', "secret is not set"),
        ('url = "https://a.example/"\nsecret = "short"', "shorter than 32"),
        (
            f'url = "https://a.example/"\nsecret = "{SECRET}"\nsecret_before = "short"',
            "secret_before is shorter than 32",
        ),
        (f'secret = "{SECRET}"', "url is not"),
        ('allow_private = ["localhost"]', "Write networks"),
        ('allow_private = ["10.0.0.1/8"]', "Write networks"),
        ('events = ["room.massage"]', "room.massage"),
        ("batch_max = 0", "batch_max"),
        ("timeout_s = 0", "timeout_s"),
    ],
)
def test_other_invalid_webhook_settings_are_refused(tmp_path: Path, text: str, words: str) -> None:
    said = refused(f"[webhooks]\n{text}", tmp_path)
    assert words in said
    assert SECRET not in said


def test_what_holds_for_all_is_not_set_for_one(tmp_path: Path) -> None:
    said = refused("[tenants.acme.webhooks]\nallow_private = ['all']", tmp_path)
    assert "Set it in [webhooks]" in said
    assert "no setting 'urll'" in refused("[tenants.acme.webhooks]\nurll = ''", tmp_path)
    assert "section with settings" in refused("[tenants.acme]\nwebhooks = 3", tmp_path)


def test_one_tenant_has_one_hook(tmp_path: Path) -> None:
    hook = f'url = "https://a.example/"\nsecret = "{SECRET}"'
    assert "two webhooks" in refused(f"[webhooks]\n{hook}\n[tenants.default.webhooks]\n{hook}", tmp_path)
