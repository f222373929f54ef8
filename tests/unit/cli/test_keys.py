"""`greendot keys`, on a store that is in use."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import msgspec
import pytest

from cli.calls import call, complaint
from cli.stores import both_stores, opened, said
from greendot.auth.model import hash_of, parse
from greendot.store.port import Store

DAY_MS = 86_400_000


async def kept(store: Store, key: str, tenant: str = "default") -> tuple[str, tuple[str, ...], int | None]:
    """Return the stored name, scopes and lifetime of the key with this text."""
    shown = parse(key)
    assert shown is not None
    found = await store.key_of_secret(shown.id)
    assert found is not None
    of, secret = found
    assert of.tenant == tenant
    assert secret.hash == hash_of(shown.secret)
    return of.name, of.scopes, None if secret.expires_at is None else secret.expires_at - secret.created_at


async def made(*arguments: str) -> str:
    """Return the key that a call prints on standard output."""
    result = await asyncio.to_thread(lambda: call("keys", *arguments))
    assert result.exit_code == 0, (result.output, result.exception)
    assert "shown only now" in result.stderr
    return result.stdout.removesuffix("\n")


@both_stores
async def test_a_key_is_made_shown_once_and_kept_as_a_hash(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        scopes = ("--scope", "notify", "--scope", "rooms:read", "--scope", "notify")
        key = await made("create", "backend", *scopes, "--expires", "90d", "--store", url)
        assert await kept(store, key) == ("backend", ("notify", "rooms:read"), 90 * DAY_MS)
        other = await made("create", "backend", "--tenant", "acme", "--scope", "admin", "--store", url)
        assert await kept(store, other, "acme") == ("backend", ("admin",), None)
        ours = await made("create", "backend", "--operator", "--store", url)
        assert await kept(store, ours, "") == ("backend", ("operator",), None)
        assert len({key, other, ours}) == 3
        listed = await said("keys", "list", "--store", url)
        as_json = await said("keys", "list", "--json", "--store", url)
        for text in (key, other, ours):
            _, id, secret = text.split("_")
            assert id in listed
            assert id in as_json
            assert secret not in listed + as_json
            assert hash_of(secret).hex() not in listed + as_json
        assert [line.split()[:2] for line in listed.splitlines()[1:]] == [
            ["(operator)", "backend"],
            ["acme", "backend"],
            ["default", "backend"],
        ]
        assert [entry["tenant"] for entry in msgspec.json.decode(as_json)["keys"]] == [None, "acme", "default"]
        assert "acme" not in await said("keys", "list", "--operator", "--store", url)
        only = await said("keys", "list", "--tenant", "acme", "--store", url)
        assert "default" not in only
        twice = ("keys", "create", "backend", "--scope", "notify", "--store", url)
        assert await asyncio.to_thread(complaint, *twice) == (
            "key 'backend' of tenant default already exists. Rotate or revoke it, or choose another name."
        )
        printed = msgspec.json.decode(await said("keys", "create", "k2", "--scope", "notify", "--json", "--store", url))
        assert (await kept(store, printed["key"]))[0] == printed["name"] == "k2"


@both_stores
async def test_a_key_is_rotated_with_an_overlap(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        old = await made("create", "backend", "--scope", "notify", "--expires", "30d", "--store", url)
        new = await made("rotate", "backend", "--store", url)
        assert await kept(store, new) == ("backend", ("notify",), 30 * DAY_MS)
        _, _, lasts_ms = await kept(store, old)
        assert lasts_ms is not None
        assert DAY_MS <= lasts_ms <= DAY_MS + 60_000
        found = await store.api_key("default", "backend")
        assert found is not None
        assert len(found[1]) == 2
        listed = (await said("keys", "list", "--store", url)).splitlines()
        assert listed[1].endswith("23 h")
        assert listed[2].endswith("29 d")
        newest = await made("rotate", "backend", "--overlap", "0s", "--expires", "1h", "--store", url)
        assert (await kept(store, newest))[2] == DAY_MS / 24
        found = await store.api_key("default", "backend")
        assert found is not None
        now = time.time() * 1000
        assert [secret.expires_at is not None and secret.expires_at <= now for secret in found[1]] == [
            True,
            True,
            False,
        ]
        assert (await said("keys", "list", "--store", url)).count("ended") == 2


@both_stores
async def test_a_revoked_key_is_gone(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        assert (await said("keys", "list", "--store", url)).startswith("There are no keys.")
        await made("create", "backend", "--tenant", "acme", "--scope", "notify", "--store", url)
        wrong = ("keys", "revoke", "backend", "--store", url)
        assert "key 'backend' of tenant default not found" in await asyncio.to_thread(complaint, *wrong)
        told = await said("keys", "revoke", "backend", "--tenant", "acme", "--store", url)
        assert told == "Revoked key backend of tenant acme. Servers refuse it within 10 s.\n"
        assert await store.api_keys() == []
        for command in ("revoke", "rotate"):
            gone = ("keys", command, "backend", "--tenant", "acme", "--store", url)
            assert "key 'backend' of tenant acme not found" in await asyncio.to_thread(complaint, *gone)


async def test_where_only_registered_tenants_may_come_keys_are_for_those(tmp_path: Path, postgres: str) -> None:
    async with opened("sqlite", tmp_path, postgres) as (url, store):
        config = tmp_path / "greendot.toml"
        config.write_text('[auth]\ntenants = "registered"\n[tenants.named.limits]\nrooms = 5\n')
        make = ("keys", "create", "k", "--scope", "notify", "--store", url, "--config", str(config), "--tenant")
        assert "greendot tenants create acme" in await asyncio.to_thread(complaint, *make, "acme")
        await store.create_tenant("acme", 1)
        await said(*make, "acme")
        await said(*make, "named")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["create"], "NAME"),
        (["create", "k"], "--scope presence:read or rooms:read"),
        (["create", "k", "--scope", "everything"], "'everything' is not one of"),
        (["create", "k", "--scope", "operator"], "'operator' is not one of"),
        (["create", "k", "--operator", "--scope", "admin"], "has no scopes"),
        (["create", "k", "--operator", "--tenant", "acme"], "either --tenant or --operator"),
        (["create", "a/b", "--scope", "admin"], "the key's name 'a/b'"),
        (["create", "k\0", "--scope", "admin"], "the key's name"),
        (["create", "k" * 129, "--scope", "admin"], "the key's name"),
        (["create", "k", "--tenant", "a:b", "--scope", "admin"], "tenant 'a:b'"),
        (["create", "k", "--tenant", "", "--scope", "admin"], "tenant ''"),
        (["rotate", "k", "--tenant", ""], "tenant ''"),
        (["list", "--tenant", ""], "tenant ''"),
        (["create", "k", "--expires", "soon", "--scope", "admin"], "is not a duration"),
        (["rotate", "k", "--overlap", "-1h"], "is not a duration"),
        (["revoke"], "NAME"),
    ],
)
def test_invalid_arguments_of_the_keys_command_are_refused(arguments: list[str], word: str) -> None:
    assert word in re.sub(r"\s+", " ", complaint("keys", *arguments))


def test_looking_for_keys_makes_no_store(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    assert f"store {path} not found" in complaint("keys", "list", "--store", f"sqlite:///{path}")
    assert not path.exists()
