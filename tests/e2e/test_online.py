"""Pages of online users: their cost and the rate limit they count for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.test_http import Backend, backend, is_problem
from greendot.engine import memory, results
from greendot.engine.redis import keys, online_pages
from greendot.testing import Served
from redis_servers import redis_server

ONLINE = "/v1/presence/online"


async def come(served: Served, *users: str) -> None:
    for user in users:
        await served.client(user)


async def everybody(api: Backend, limit: int) -> list[str]:
    """Return the users of all pages."""
    page = await api.get(f"{ONLINE}?limit={limit}")
    users: list[str] = page["users"]
    while page["next"] is not None:
        page = await api.get(f"{ONLINE}?limit={limit}&after={page['next']}")
        users += page["users"]
    return users


def counted(monkeypatch: pytest.MonkeyPatch, engine: Any) -> list[str]:
    """Return a list that records the scripts and commands sent to Redis from now on."""
    asked: list[str] = []
    for server in engine.servers.all.values():
        call = server.call

        async def counting(name: str, *arguments: Any, call: Any = call) -> Any:
            asked.append(name)
            return await call(name, *arguments)

        monkeypatch.setattr(server, "call", counting)
    return asked


async def test_a_page_of_a_few_asks_redis_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server("redis", tmp_path) as port:
        async with backend(engine={"url": f"redis://127.0.0.1:{port}"}) as (served, api):
            await come(served, "alice", "bob", "carol", "dora")
            await served.settle()
            asked = counted(monkeypatch, served.node.engine)
            counts = []
            for _ in range(5):
                asked.clear()
                assert (await api.get(ONLINE))["users"] == ["alice", "bob", "carol", "dora"]
                counts.append(len(asked))
            # Partitions are read eight at a time. The node's own calls add a few.
            assert 1 <= min(counts) <= keys.PARTITIONS / online_pages.AT_ONCE + 4
            monkeypatch.undo()
            assert (
                sorted(await everybody(api, 1)) == sorted(await everybody(api, 3)) == ["alice", "bob", "carol", "dora"]
            )


async def test_a_script_stops_after_some_users_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [f"u{number}" for number in range(30)]
    with redis_server("redis", tmp_path) as port:
        async with backend(engine={"url": f"redis://127.0.0.1:{port}"}) as (served, api):
            await come(served, *users)
            monkeypatch.setattr(online_pages, "MOST_READ", 2)
            page = await api.get(f"{ONLINE}?limit=100")
            assert (page["users"], page["count"]) == (sorted(users), 30)
            # A page that has reached the limit of steps ends early and has a cursor for the next page.
            monkeypatch.setattr(online_pages, "MOST_STEPS", 3)
            assert sorted(await everybody(api, 100)) == sorted(users)


async def test_a_page_in_memory_ends_after_some_users_though_none_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with backend() as (served, api):
        for number in range(20):
            client = await served.client(f"u{number}")
            await client.request(type="status.set", status="invisible")
        await come(served, "alice")
        monkeypatch.setattr(memory, "MOST_LOOKED_AT", 5)
        page = await api.get(ONLINE)
        assert page["next"].startswith("~") or page["users"] == ["alice"]
        assert page["count"] == 1
        assert await everybody(api, 100) == ["alice"]


async def test_pages_are_charged_by_what_was_looked_at() -> None:
    users = [f"u{number}" for number in range(30)]
    async with backend(limits={"tenant_watches_per_s": 10, "burst_s": 1.0}) as (served, api):
        await come(served, *users)
        assert (await api.get(f"{ONLINE}?limit=2"))["count"] == 30  # all 30 users were read, more than the limit allows
        detail = is_problem(await api("GET", ONLINE), 429, "rate_limited")
        assert "user lookups" in detail
        await served.advance(5)
        assert len((await api.get(f"{ONLINE}?limit=3"))["users"]) == 3


@pytest.mark.parametrize("engine", ["memory", "redis"])
async def test_a_tenant_that_grows_while_it_is_paged_is_paged_to_the_end(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "ORDERED", 10)
    with redis_server("redis", tmp_path) as port:
        url = "memory" if engine == "memory" else f"redis://127.0.0.1:{port}"
        async with backend(engine={"url": url}) as (served, api):
            users = [f"u{number:02}" for number in range(10)]
            await come(served, *users)
            assert (first := await api.get(f"{ONLINE}?limit=4"))["next"] == "u03"
            await come(served, *(f"v{number}" for number in range(5)))
            rest = await api.get(f"{ONLINE}?limit=20&after=u03")  # the cursor is an id
            assert (first["users"] + rest["users"], rest["next"]) == ([*users, *(f"v{n}" for n in range(5))], None)
            pages = await everybody(api, 4)
            assert (len(pages), sorted(pages)) == (15, sorted(first["users"] + rest["users"]))


@pytest.mark.parametrize("bad", ["~", "~12", "~123g", "~00001", "a/b", "~0000x", "~0000~", "~0000~a/b"])
async def test_what_is_no_place_to_begin_with_is_refused(bad: str) -> None:
    async with backend() as (_, api):
        assert "after" in is_problem(await api("GET", f"{ONLINE}?after={bad}"), 400, "bad_field")
