"""Contract of every store for API keys and tenants."""

from __future__ import annotations

import asyncio

from greendot.presence.model import ManualStatus
from greendot.store.api_keys import OPERATOR, ApiKey, Secret
from greendot.store.inbox import Notice
from greendot.store.port import Store
from greendot.testing.store_harness import NOW, StoreHarness, T, draft

HOUR = 3_600_000


def key(name: str = "backend", tenant: str = T, *scopes: str) -> ApiKey:
    return ApiKey(tenant, name, scopes or ("rooms:read", "notify"), NOW)


def secret(id: str, at: int = NOW, expires_at: int | None = None) -> Secret:
    return Secret(id, b"\x00\xff" + id.encode(), at, expires_at)


async def fill(store: Store, tenant: str, rooms: int = 3) -> None:
    """Write a record of every type."""
    for number in range(rooms):
        room = f"r{number}"
        await store.put_room(tenant, room, open=number == 0)
        await store.put_member(tenant, room, "ann")
        await store.append(tenant, room, draft())
        await store.put_marker(tenant, room, "ann", 1)
    await store.notify([Notice(tenant, f"u{n}", "k", b"1", f"k{n}", NOW) for n in range(rooms)])
    await store.mark(tenant, "u0", "archive", through=1, at=NOW)
    await store.put_status(tenant, "ann", ManualStatus("busy"))
    await store.put_last_seen({(tenant, "ann"): NOW})
    await store.put_privacy(tenant, "ann", last_seen="hidden")
    await store.put_contact(tenant, "ann", "bob", NOW, most=10)
    await store.create_key(key("backend", tenant), secret(f"{tenant}-1"))


class KeySuite(StoreHarness):
    """Contract of `KeyStore` and `TenantStore`, as tests."""

    async def test_a_key_is_found_by_its_secret(self) -> None:
        async with self.opened() as store:
            assert await store.key_of_secret("s1") is None
            assert await store.create_key(key(), secret("s1", expires_at=NOW + 5))
            assert await store.key_of_secret("s1") == (key(), secret("s1", expires_at=NOW + 5))
            assert await store.api_key(T, "backend") == (key(), [secret("s1", expires_at=NOW + 5)])
            assert await store.api_key("t2", "backend") is None
            assert await store.key_of_secret("S1") is None

    async def test_a_name_is_taken_once_in_its_tenant(self) -> None:
        async with self.opened_twice() as (one, two):
            made = await asyncio.gather(
                *(store.create_key(key(), secret(f"s{n}")) for n, store in enumerate((one, two) * 5))
            )
            assert sum(made) == 1
            assert await one.key_of_secret(f"s{made.index(True)}") is not None
            assert await one.key_of_secret(f"s{made.index(False)}") is None
            assert await one.create_key(key(tenant="t2"), secret("other"))
            assert await one.create_key(key("backend", OPERATOR, "operator"), secret("ours"))
            listed = await two.api_keys()
            assert [(of.tenant, of.name) for of, _ in listed] == [("", "backend"), (T, "backend"), ("t2", "backend")]
            assert [of.tenant for of, _ in await two.api_keys("t2")] == ["t2"]
            assert [of.scopes for of, _ in await two.api_keys(OPERATOR)] == [("operator",)]

    async def test_a_new_secret_removes_those_of_its_own_key_that_have_ended(self) -> None:
        async with self.opened() as store:
            for tenant in (T, "t2"):
                await store.create_key(key(tenant=tenant), secret(f"{tenant}-1", expires_at=NOW))
                await store.create_key(key("other", tenant), secret(f"{tenant}-other", expires_at=NOW))
            assert await store.rotate_key(T, "backend", secret("new", NOW), old_ends_at=NOW + HOUR)
            assert not await store.rotate_key(T, "nobody", secret("none", NOW), old_ends_at=NOW + HOUR)
            left = {(of.tenant, of.name): [one.id for one in secrets] for of, secrets in await store.api_keys()}
            assert left == {
                (T, "backend"): ["new"],
                (T, "other"): [f"{T}-other"],
                ("t2", "backend"): ["t2-1"],
                ("t2", "other"): ["t2-other"],
            }

    async def test_a_new_secret_is_valid_beside_the_old_ones_until_these_end(self) -> None:
        async with self.opened() as store:
            assert not await store.rotate_key(T, "backend", secret("s0"), old_ends_at=NOW)
            await store.create_key(key(), secret("s1"))
            assert await store.rotate_key(T, "backend", secret("s2", NOW + 1), old_ends_at=NOW + HOUR)
            # A second rotation before the first secret has ended keeps its end.
            assert await store.rotate_key(T, "backend", secret("s3", NOW + 2), old_ends_at=NOW + 2 * HOUR)
            found = await store.api_key(T, "backend")
            assert found == (
                key(),
                [secret("s1", NOW, NOW + HOUR), secret("s2", NOW + 1, NOW + 2 * HOUR), secret("s3", NOW + 2)],
            )
            # Ended secrets are not kept for ever.
            await store.rotate_key(T, "backend", secret("s4", NOW + HOUR), old_ends_at=NOW + HOUR)
            assert await store.key_of_secret("s1") is None
            assert (await store.key_of_secret("s3") or (None, None))[1] == secret("s3", NOW + 2, NOW + HOUR)

    async def test_of_secrets_made_at_once_all_but_the_last_end(self) -> None:
        async with self.opened_twice() as (one, two):
            await one.create_key(key(), secret("s"))
            rotations = (
                store.rotate_key(T, "backend", secret(f"s{number}", NOW + 1), old_ends_at=NOW + HOUR)
                for number, store in enumerate((one, two) * 5)
            )
            assert all(await asyncio.gather(*rotations))
            found = await one.api_key(T, "backend")
            assert found is not None
            assert len(found[1]) == 11
            assert [one.expires_at for one in found[1]].count(None) == 1

    async def test_a_removed_key_is_gone_with_all_its_secrets(self) -> None:
        async with self.opened() as store:
            await store.create_key(key(), secret("s1"))
            await store.create_key(key("other"), secret("o1"))
            await store.create_key(key(tenant="t2"), secret("t1"))
            await store.rotate_key(T, "backend", secret("s2"), old_ends_at=NOW + HOUR)
            assert await store.remove_key(T, "backend")
            assert not await store.remove_key(T, "backend")
            assert [await store.key_of_secret(id) is None for id in ("s1", "s2", "o1", "t1")] == [1, 1, 0, 0]
            assert await store.create_key(key(), secret("s3"))

    async def test_when_a_secret_was_used_is_kept_and_never_goes_back(self) -> None:
        async with self.opened() as store:
            await store.create_key(key(), secret("s1"))
            await store.key_used("s1", NOW + 5)
            await store.key_used("s1", NOW + 3)
            await store.key_used("nobody's", NOW)
            found = await store.key_of_secret("s1")
            assert found is not None
            assert found[1].used_at == NOW + 5

    # --- tenants ---

    async def test_tenants_are_registered_once_and_paged_by_name(self) -> None:
        async with self.opened() as store:
            assert await store.tenant("acme") is None
            assert await store.create_tenant("acme", NOW)
            assert not await store.create_tenant("acme", NOW + 1)
            assert await store.tenant("acme") == ("acme", NOW)
            for name in ("b", "B", "a.b"):
                await store.create_tenant(name, NOW)
            assert [tenant for tenant, _ in await store.tenants(None, 3)] == ["B", "a.b", "acme"]
            assert await store.tenants("acme", 3) == [("b", NOW)]

    async def test_all_of_a_tenant_is_erased_and_nothing_of_another(self) -> None:
        async with self.opened() as store:
            for tenant in (T, "t2", "t"):
                await fill(store, tenant)
                await store.create_tenant(tenant, NOW)
            before = await store.tenant_rows("t2")
            assert await store.tenant_rows(T) == before
            assert {"rooms", "members", "markers", "messages", "inboxes", "notifications", "status"} <= before.keys()
            assert before["notifications"] == before["rooms"] == 3
            erased: list[int] = []
            while count := await store.erase_tenant(T, limit=4):
                assert count <= 4
                erased.append(count)
                if len(erased) == 1:
                    assert await store.api_key(T, "backend") is None
            assert sum(erased) > sum(before.values())  # the erasure itself changes visibility, which is recorded too
            assert await store.tenant_rows(T) == {}
            assert await store.tenant(T) is None
            assert await store.tenant_rows("t2") == await store.tenant_rows("t") == before
            assert await store.tenant("t2") is not None
            assert await store.recount(fix=False) == []
