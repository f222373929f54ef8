"""Keys of a remote server in virtual time: fetches, and decisions while a fetch is pending."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from greendot.auth.jwks import AGAIN_S, FetchFailed, RemoteKeys
from greendot.auth.keyring import VerificationKey
from greendot.auth.tokens import Tokens
from greendot.errors import KeysUnavailable, TokenError
from greendot.testing.clock import ManualClock
from signers import signer

NOW = 1_800_000_000_000
CLAIMS = {"sub": "ann", "exp": NOW // 1000 + 3_600}
OLD, NEW = signer("RS256"), signer("EdDSA")


class Provider:
    """Server that publishes the keys."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.keys: list[dict[str, Any]] = [OLD.jwk("old")]
        self.fetches = 0
        self.down: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.remote = RemoteKeys(self.fetch, self.clock.monotonic)
        self.tokens = Tokens(remote=self.remote)

    async def fetch(self) -> bytes:
        self.fetches += 1
        await self.gate.wait()
        if self.down is not None:
            raise self.down
        return json.dumps({"keys": self.keys}).encode()

    async def read(self, token: str) -> str:
        return (await self.tokens.verify(token, NOW)).user


async def test_a_token_of_a_known_key_needs_no_fetch() -> None:
    provider = Provider()
    await provider.remote.refresh()
    for _ in range(3):
        assert await provider.read(OLD.sign("old", **CLAIMS)) == "ann"
    assert provider.fetches == 1


async def test_a_new_key_is_looked_for_at_once_and_the_old_one_ends_when_it_is_withdrawn() -> None:
    provider = Provider()
    await provider.remote.refresh()
    old = OLD.sign("old", **CLAIMS)
    assert await provider.read(old) == "ann"
    provider.keys = [NEW.jwk("new")]
    assert await provider.read(old) == "ann"  # the cached keys still hold the old key
    provider.clock.advance(AGAIN_S)
    assert await provider.read(NEW.sign("new", **CLAIMS)) == "ann"
    with pytest.raises(TokenError):  # the old key is withdrawn, although its token was cached
        await provider.read(old)
    assert provider.fetches == 2


async def test_unknown_key_ids_cause_one_fetch_in_some_seconds_and_are_then_refused() -> None:
    provider = Provider()
    await provider.remote.refresh()
    provider.clock.advance(AGAIN_S)
    with pytest.raises(TokenError, match="not known"):
        await provider.read(OLD.sign("nobody", **CLAIMS))
    for number in range(50):
        with pytest.raises(TokenError, match="not known"):  # a fetch has shown that the key does not exist
            await provider.read(OLD.sign("nobody", **CLAIMS))
        with pytest.raises(KeysUnavailable) as caught:  # no fetch has looked for this key yet
            await provider.read(OLD.sign(f"nobody-{number}", **CLAIMS))
        assert 0 < caught.value.retry_in_ms <= AGAIN_S * 1000
    assert provider.fetches == 2
    provider.clock.advance(AGAIN_S)
    for number in range(50):
        with pytest.raises(TokenError, match="not known"):
            await provider.read(OLD.sign(f"nobody-{number}", **CLAIMS))
    assert provider.fetches == 3


async def test_the_memory_for_unknown_key_names_is_bounded() -> None:
    provider = Provider()
    await provider.remote.refresh()
    for round_ in range(4):
        for number in range(1_500):
            with pytest.raises((KeysUnavailable, TokenError)):
                await provider.read(OLD.sign(f"{round_}-{number}", **CLAIMS))
        provider.clock.advance(AGAIN_S)
    assert len(provider.remote._asked) + len(provider.remote._absent) <= 4_000
    with pytest.raises(TokenError, match="too long"):
        await provider.read(OLD.sign("x" * 10_000, **CLAIMS))


async def test_many_waiting_reads_share_one_fetch_and_those_above_the_limit_are_refused() -> None:
    provider = Provider()
    provider.gate.clear()
    token = OLD.sign("old", **CLAIMS)
    waiting = [asyncio.create_task(provider.read(token)) for _ in range(100)]
    await asyncio.sleep(0.01)
    waiting[0].cancel()  # a waiter that is cancelled does not cancel the others
    provider.gate.set()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert done[1:64] == ["ann"] * 63
    assert all(isinstance(told, KeysUnavailable) for told in done[64:])
    assert provider.fetches == 1
    assert await provider.read(token) == "ann"


@pytest.mark.parametrize("what", ["down", "garbage", "emptied"])
async def test_an_outage_keeps_the_last_good_keys_and_is_logged_once(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider()
    await provider.remote.refresh()
    caplog.set_level(logging.INFO)
    if what == "down":
        provider.down = FetchFailed("it cannot be reached")
    provider.keys = [] if what == "emptied" else [{"kty": "garbage"}]
    for _ in range(10):
        provider.clock.advance(AGAIN_S)
        await provider.remote.refresh()
        assert await provider.read(OLD.sign("old", **CLAIMS)) == "ann"
    assert len(caplog.records) == 1
    provider.down, provider.keys = None, [NEW.jwk("new")]
    provider.clock.advance(AGAIN_S)
    await provider.remote.refresh()
    assert await provider.read(NEW.sign("new", **CLAIMS)) == "ann"
    assert len(caplog.records) == 2


async def test_a_possibly_valid_token_is_not_refused_as_bad_during_an_outage() -> None:
    provider = Provider()
    provider.down = FetchFailed("it cannot be reached")
    with pytest.raises(KeysUnavailable):
        await provider.read(OLD.sign("old", **CLAIMS))
    with pytest.raises(KeysUnavailable):  # the fetch is not repeated at once
        await provider.read(OLD.sign("old", **CLAIMS))
    assert provider.fetches == 1
    with pytest.raises(TokenError, match="algorithm"):  # no key could make this token valid
        await provider.read(signer("HS256").sign("old", **CLAIMS))
    provider.down = None
    provider.clock.advance(AGAIN_S)
    assert await provider.read(OLD.sign("old", **CLAIMS)) == "ann"


async def test_a_secret_of_ours_counts_beside_their_keys_and_they_cannot_replace_our_keys() -> None:
    provider = Provider()
    own = VerificationKey("RS256", OLD.public, "ours")
    forger = signer("RS256", "forger")
    provider.keys = [forger.jwk("ours"), NEW.jwk("new")]
    tokens = Tokens("a secret, long enough to be taken", [own], remote=provider.remote)
    await provider.remote.refresh()
    assert (await tokens.verify(OLD.sign("ours", **CLAIMS), NOW)).user == "ann"
    assert (await tokens.verify(NEW.sign("new", **CLAIMS), NOW)).user == "ann"
    assert (await tokens.verify(tokens.make("bob", NOW, 60), NOW)).user == "bob"
    with pytest.raises(TokenError):
        await tokens.verify(forger.sign("ours", **CLAIMS), NOW)


async def test_closing_ends_a_fetch_that_is_under_way() -> None:
    provider = Provider()
    provider.gate.clear()
    waiting = asyncio.create_task(provider.remote.refresh())
    await asyncio.sleep(0.01)
    await provider.remote.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
