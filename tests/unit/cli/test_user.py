"""`greendot user`, on a store that is in use."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import msgspec
import pytest

from cli.calls import complaint
from cli.stores import both_stores, opened, said
from greendot.testing.user_data_suite import all_of, live


@both_stores
async def test_all_of_a_user_is_handed_out_as_lines_of_json(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        await live(store, "acme")
        call = ("user", "export", "ann", "--tenant", "acme", "--store", url)
        first, *lines = [msgspec.json.decode(line) for line in (await said(*call)).splitlines()]
        assert (first["what"], first["user"], first["tenant"]) == ("user", "ann", "acme")
        assert len(lines) == 41
        by_kind = {line["what"]: line for line in lines}
        assert by_kind["messages"]["body"] == {"by": "ann"}
        assert by_kind["status"]["text"] == "text of ann"
        newest = by_kind["notifications"]
        assert (newest["seq"], newest["body"], newest["read_at"], newest["live_at"]) == (7, "for ann", None, None)
        assert {line["room"] for line in lines if line["what"] == "members"} == {"r0", "r1", "r2"}
        file = tmp_path / "ann.jsonl"
        assert (await said(*call, "--out", str(file))) == f"Wrote 41 records of ann to {file}.\n"
        assert [msgspec.json.decode(line) for line in file.read_bytes().splitlines()][1:] == lines
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        again = await asyncio.to_thread(complaint, *call, "--out", str(file))
        assert again == f"cannot create {file}: File exists."


@both_stores
async def test_a_user_is_erased_when_it_is_meant(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        await live(store, "acme")
        call = ("user", "erase", "ann", "--tenant", "acme", "--store", url)
        assert "--yes" in await asyncio.to_thread(complaint, *call)
        assert len(await all_of(store, "ann", "acme")) == 41
        assert await said(*call, "--yes") == "Erased ann: 50 records.\n"
        assert await all_of(store, "ann", "acme") == []
        (revoked,) = await store.revocations(0, 10)
        assert (revoked.revocation.tenant, revoked.revocation.kind, revoked.revocation.value) == ("acme", "user", "ann")
        again = msgspec.json.decode(await said(*call, "--yes", "--json"))
        assert again == {"tenant": "acme", "user": "ann", "erased": 0, "sessions": None, "confirmed": True}
        assert await said("repair", "counters", "--dry-run", "--store", url) == "All counters are correct.\n"


@pytest.mark.parametrize("command", ["export", "erase"])
@pytest.mark.parametrize("user", ["", "a/b", "*", "-x", "é", "u" * 129])
def test_an_invalid_user_id_is_refused_by_the_commands(command: str, user: str) -> None:
    assert f"user {user!r} is not a valid id" in complaint("user", command, "--", user)
