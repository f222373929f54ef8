"""Refresh of remote keys on the timers of a node."""

from __future__ import annotations

import asyncio
import json

from greendot.auth.jwks import AGAIN_S, FetchFailed, RemoteKeys
from greendot.auth.jwks_refresh import JwksRefresh
from signers import signer
from unit.node_parts import NodeParts, in_virtual_time, pass_time

EVERY_S = 300.0
DOCUMENT = json.dumps({"keys": [signer("EdDSA").jwk("k1")]}).encode()


class Provider:
    """A server that publishes keys."""

    def __init__(self, parts: NodeParts) -> None:
        self.fetches = 0
        self.error: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.keys = RemoteKeys(self._fetch, parts.clock.monotonic)
        self.refresh = JwksRefresh(self.keys, parts.context, EVERY_S)

    async def _fetch(self) -> bytes:
        self.fetches += 1
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return DOCUMENT


@in_virtual_time
async def test_keys_are_there_after_the_start_and_fetched_again_every_period(parts: NodeParts) -> None:
    provider = Provider(parts)
    await provider.refresh.start()
    assert ([key.kid for key in provider.keys.keys], provider.fetches) == (["k1"], 1)
    await pass_time(0.9 * EVERY_S - 1)
    assert provider.fetches == 1
    await pass_time(0.1 * EVERY_S + 2)
    assert provider.fetches == 2
    await pass_time(10 * EVERY_S)
    assert 12 <= provider.fetches <= 13


@in_virtual_time
async def test_a_node_starts_without_its_keys_and_asks_for_them_soon(parts: NodeParts) -> None:
    provider = Provider(parts)
    provider.error = FetchFailed("down")
    await provider.refresh.start()
    assert (provider.keys.away, provider.fetches) == (True, 1)
    await pass_time(0.9 * AGAIN_S - 0.1)
    assert provider.fetches == 1
    provider.error = None
    await pass_time(0.1 * AGAIN_S + 0.2)
    assert (provider.keys.away, provider.fetches) == (False, 2)
    await pass_time(5 * AGAIN_S)
    assert provider.fetches == 2


@in_virtual_time
async def test_keys_that_went_away_stay_and_are_asked_for_more_often(parts: NodeParts) -> None:
    provider = Provider(parts)
    await provider.refresh.start()
    provider.error = FetchFailed("down")
    await pass_time(EVERY_S + 5 * AGAIN_S)
    assert 6 <= provider.fetches <= 11
    assert [key.kid for key in provider.keys.keys] == ["k1"]


@in_virtual_time
async def test_a_fault_in_a_fetch_does_not_end_the_refresh(parts: NodeParts) -> None:
    provider = Provider(parts)
    await provider.refresh.start()
    provider.error = RuntimeError("a fault")
    await pass_time(EVERY_S + 1)
    assert len(parts.failed()) == 1
    provider.error = None
    await pass_time(EVERY_S + 1)
    assert provider.fetches >= 3


@in_virtual_time
async def test_the_end_of_the_node_ends_a_fetch_under_way(parts: NodeParts) -> None:
    provider = Provider(parts)
    await provider.refresh.start()
    provider.answers.clear()
    await pass_time(EVERY_S + 1)
    assert provider.fetches == 2
    fetching = provider.keys._under_way
    await provider.refresh.close()
    assert fetching is not None
    assert fetching.cancelled()


@in_virtual_time
async def test_without_remote_keys_nothing_is_done(parts: NodeParts) -> None:
    refresh = JwksRefresh(None, parts.context, EVERY_S)
    await refresh.start()
    assert len(parts.context.timers) == 0
    await refresh.close()
