"""Centrifuge clients on both engines and both stores: one conversation, the same on each."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends import PAIRS, serving_on
from centrifuge_clients.parts import ON, RawClient, subscription_token
from greendot.store.audit import AuditNote


@pytest.mark.parametrize("pair", PAIRS)
async def test_a_conversation_is_recovered_read_and_ended(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres, centrifuge=ON) as served:
        ann, bob = [await RawClient.subscribed(served, user, "news:42") for user in ("ann", "bob")]
        for number in (1, 2, 3):
            await ann.ask(publish={"channel": "news:42", "data": number})
        seen = []
        while len(seen) < 3:
            push = await bob.push()
            seen += [push["pub"]["offset"]] if "pub" in push else []
        assert seen == [1, 2, 3]
        page = (await bob.ask(history={"channel": "news:42", "limit": 2, "reverse": True}))["history"]
        assert [one["data"] for one in page["publications"]] == [3, 2]
        assert (await bob.ask(presence_stats={"channel": "news:42"}))["presence_stats"]["num_users"] == 2

        await bob.ask(unsubscribe={"channel": "news:42"})
        since = {"channel": "news:42", "recover": True, "offset": 1, "epoch": page["epoch"]}
        again = (await bob.ask(subscribe=since))["subscribe"]
        assert again["recovered"]
        assert [one["offset"] for one in again["publications"]] == [2, 3]

        note = AuditNote("default", served.clock.now_ms(), "test", "room.deleted", "news=3A42")
        await served.node.moderation.delete("default", "news=3A42", note)
        for client in (ann, bob):
            while "unsubscribe" not in await client.push():
                pass
        token = subscription_token(served, "ann", "$own")
        assert "subscribe" in await ann.ask(subscribe={"channel": "$own", "token": token})
        assert (await bob.ask(subscribe={"channel": "$own"}))["error"]["code"] == 103
