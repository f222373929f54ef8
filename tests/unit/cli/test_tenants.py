"""`greendot tenants`, on a store that is in use."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from cli.calls import complaint
from cli.stores import both_stores, opened, said
from greendot.testing.api_key_suite import fill


@both_stores
async def test_tenants_are_registered_and_listed(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        assert await said("tenants", "list", "--store", url) == "No tenant is registered.\n"
        assert (await said("tenants", "create", "acme", "--store", url)).startswith(
            "Registered acme. Create a key for it: "
        )
        again = await asyncio.to_thread(complaint, "tenants", "create", "acme", "--store", url)
        assert again == "tenant acme is already registered."
        await fill(store, "acme")
        config = tmp_path / "greendot.toml"
        config.write_text("[tenants.named.limits]\nrooms = 5\n")
        listed = (await said("tenants", "list", "--store", url, "--config", str(config))).splitlines()
        assert [line.split() for line in listed] == [
            ["TENANT", "REGISTERED", "KEYS"],
            ["acme", *listed[1].split()[1:-1], "1"],
            ["named", "in", "the", "settings", "0"],
        ]
        entries = msgspec.json.decode(await said("tenants", "list", "--json", "--store", url))["tenants"]
        assert [(entry["tenant"], entry["keys"]) for entry in entries] == [("acme", 1)]
        assert "--after acme" in await said("tenants", "list", "--limit", "1", "--store", url)
        assert await said("tenants", "list", "--after", "acme", "--store", url) == "No more tenants are registered.\n"


@both_stores
async def test_a_tenant_is_shown_and_erased_with_all_that_is_its_own(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        await store.create_tenant("acme", 1)
        assert "It has no records in the store." in await said("tenants", "show", "acme", "--store", url)
        for tenant in ("acme", "rival"):
            await fill(store, tenant)
        rival = await store.tenant_rows("rival")
        shown = msgspec.json.decode(await said("tenants", "show", "acme", "--json", "--store", url))
        assert shown == {"tenant": "acme", "registered_at": 1, "records": rival}
        lines = (await said("tenants", "show", "rival", "--store", url)).splitlines()
        assert lines[0] == "rival is not registered."
        assert ["rooms", "3"] in [line.split() for line in lines]
        refused = await asyncio.to_thread(complaint, "tenants", "delete", "acme", "--store", url)
        assert refused.startswith("tenant acme still has ")
        assert "3 rooms" in refused
        assert "--yes" in refused
        assert await store.tenant_rows("acme") == rival
        told = await said("tenants", "delete", "acme", "--yes", "--store", url)
        erased = re.fullmatch(r"Erased acme: (\d+) records\. Servers refuse its keys within 10 s\.\n", told)
        assert erased is not None
        assert int(erased[1]) > sum(rival.values())  # the erasure records changes of visibility, and erases them too
        assert await store.tenant_rows("acme") == {}
        assert await store.tenant("acme") is None
        assert await store.tenant_rows("rival") == rival
        gone = await asyncio.to_thread(complaint, "tenants", "delete", "acme", "--yes", "--store", url)
        assert gone == "tenant 'acme' is not registered and has no records in the store."


async def test_an_empty_tenant_is_deleted_without_asking(tmp_path: Path, postgres: str) -> None:
    async with opened("sqlite", tmp_path, postgres) as (url, store):
        await store.create_tenant("acme", 1)
        assert "Erased acme: 1 record." in await said("tenants", "delete", "acme", "--store", url)
        assert await store.tenant("acme") is None


@pytest.mark.parametrize("command", ["create", "show", "delete"])
@pytest.mark.parametrize("tenant", ["", "a/b", "a b", "*", "-x", "é", "t" * 129])
def test_an_invalid_tenant_id_is_refused_by_the_commands(command: str, tenant: str) -> None:
    assert f"tenant {tenant!r} is not a valid id" in complaint("tenants", command, "--", tenant)
