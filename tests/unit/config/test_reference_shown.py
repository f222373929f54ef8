"""Settings that may be shown: all of them except secrets."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from greendot.config import Settings, load, shown
from greendot.config.fields import is_secret, split

HUSH = "hush" * 16
SECRET_NAMES = (
    "secret",
    "secret_before",
    "ask_secret",
    "hash_key",
    "rpc_secret",
    "webhook_secret",
    "webhook_secret_before",
)


def secret_settings(kind: Any = Settings, at: str = "") -> set[str]:
    """Return the names of all settings that are marked as secret, at any depth."""
    found = set()
    for field in msgspec.structs.fields(kind):
        for inner in (field.type, *get_args(split(field.type)[0])):
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                found |= secret_settings(inner, f"{at}{field.name}.")
        if is_secret(field.type):
            found.add(f"{at}{field.name}")
    return found


def all_settings(kind: Any = Settings, at: str = "") -> set[str]:
    found = set()
    for field in msgspec.structs.fields(kind):
        inners = [
            inner
            for inner in (field.type, *get_args(split(field.type)[0]))
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct)
        ]
        for inner in inners:
            found |= all_settings(inner, f"{at}{field.name}.")
        if not inners:
            found.add(f"{at}{field.name}")
    return found


def test_whatever_is_called_a_secret_is_marked_as_one() -> None:
    called = {name for name in all_settings() if name.rpartition(".")[2] in SECRET_NAMES}
    assert secret_settings() == called | {"api.key", "admin.key", "server.dev_gate"}


def test_no_secret_is_shown_wherever_it_is() -> None:
    hook = {"url": f"https://app.example/{HUSH}", "secret": HUSH, "secret_before": HUSH}
    ask = {"ask_url": f"https://app.example/{HUSH}", "ask_secret": HUSH}
    push = {f"webhook_{name}": value for name, value in hook.items()}
    settings = load(
        None,
        {},
        {
            "auth": {"secret": HUSH, "keys": [{"kid": "k1", "alg": "HS256", "secret": HUSH}]},
            "api": {"key": HUSH},
            "admin": {"key": HUSH},
            "privacy": {"hash_key": HUSH},
            "webhooks": hook,
            "visibility": ask,
            "push": push,
            "tenants": {"acme": {"webhooks": hook, "visibility": ask, "push": push}},
            "engine": {"url": f"redis+cluster://ann:{HUSH}@h1,[::1]:1,[::2]"},
            "store": {"url": f"postgresql://ann:{HUSH}@db/greendot"},
            "outbox": {"url": f"postgresql://ann:{HUSH}@db/app"},
        },
    )
    found = shown(settings)
    assert HUSH not in str(found)
    assert found["auth"]["secret"] == found["tenants"]["acme"]["visibility"]["ask_secret"] == "(set)"
    assert found["webhooks"]["url"] == found["visibility"]["ask_url"] == "https://app.example/…"
    assert found["engine"]["url"] == "redis+cluster://h1,[::1]:1,[::2]"
    assert found["store"]["url"] == "postgresql://db/greendot"


@pytest.mark.parametrize("url", ["", "sqlite:///here.db", "sqlite:////var/lib/g.db", "postgresql://[::1]:5432/db"])
def test_an_address_without_a_login_is_shown_as_it_is(url: str) -> None:
    assert shown(load(None, {}, {"store": {"url": url}}))["store"]["url"] == url


def test_what_is_no_secret_is_shown() -> None:
    found = shown(Settings())
    assert found["limits"] == msgspec.to_builtins(Settings().limits)
    assert found["auth"]["secret"] == "(not set)"
