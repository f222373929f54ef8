"""`greendot webhooks`, on a store that is in use."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cli.calls import complaint
from cli.stores import both_stores, opened, said
from greendot.clock import SystemClock
from greendot.protocol.webhooks import TYPES
from greendot.store.rooms import Draft
from greendot.store.webhooks import Failed

T = "default"
HOOK = {"GREENDOT_WEBHOOKS_URL": "https://app.example/hook", "GREENDOT_WEBHOOKS_SECRET": "s" * 40}


@both_stores
async def test_how_it_stands_is_shown_and_dead_letters_are_sent_again(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres, {T: TYPES, "acme": TYPES}) as (url, store):
        assert "There are no webhooks" in await said("webhooks", "list", "--store", url)
        assert await said("webhooks", "dead", "--store", url) == "There are no dead letters.\n"
        now = SystemClock().now_ms()
        for tenant in (T, "acme"):
            await store.put_room(tenant, "r1", open=True)
            for number in range(3):
                await store.append(tenant, "r1", Draft("ann", None, b'"private"', f"k{number}", now))
        first, second, _ = await store.take_hooks(T, now, 9, again=False)
        await store.settle_hooks(T, [], [Failed(first.id, None, "no answer"), Failed(second.id, now, "no")], now)
        await store.stop_hook("acme", "place", "the app responded with 410", now)
        listed = (await said("webhooks", "list", "--store", url, **HOOK)).splitlines()
        assert [line.split()[:5] for line in listed] == [
            ["TENANT", "HOOK", "WAITING", "FAILING", "DEAD"],
            ["acme", "none", "3", "0", "0"],
            ["default", "on", "2", "1", "1"],
        ]
        dead = await said("webhooks", "dead", "--store", url)
        assert "no answer" in dead
        assert "private" not in dead
        (event,) = msgspec.json.decode(await said("webhooks", "dead", "--json", "--store", url))["dead"]
        assert (event["id"], event["tenant"], event["stream"], event["seq"]) == (first.id, T, "r1", 1)
        assert "no dead" in await said("webhooks", "dead", "--tenant", "acme", "--store", url)
        again = await said("webhooks", "replay", "--id", str(first.id), "--id", "999", "--store", url)
        assert again == "1 event will be sent.\nNot found, or not dead letters: 999.\n"
        states = msgspec.json.decode(await said("webhooks", "list", "--json", "--store", url, **HOOK))["webhooks"]
        assert [(state["tenant"], state["dead"], state["stopped_at"], state["hook"]) for state in states] == [
            ("acme", 0, now, False),
            (T, 0, None, True),
        ]


def test_a_replay_without_a_selection_is_refused() -> None:
    assert "Give --id" in complaint("webhooks", "replay")
    assert "Give --id" in complaint("webhooks", "replay", "--all", "--id", "3")


def test_a_url_that_should_not_be_called_is_not_called() -> None:
    assert "user or password" in complaint("webhooks", "test", "https://a:b@app.example/", **HOOK)
    assert "could be read in transit" in complaint("webhooks", "test", "http://app.example/", **HOOK)
    assert "no webhook" in complaint("webhooks", "test", "--tenant", "acme", **HOOK)
