"""Token refresh before expiry, with a server that the test controls."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64encode

import pytest

from greendot.client import Client, CommandRefused, Disconnected, Failure
from greendot.client import expiry as expiry_module
from greendot.client import token_refresh as refreshing_module
from greendot.protocol.commands import TokenRefresh
from greendot.protocol.replies import RefreshReply

from .wire import AT_ONCE, Peer, both, connected, run, serving, state


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry_module, "SOONEST_S", 0.0)
    monkeypatch.setattr(refreshing_module, "RETRY_S", 0.01)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refresh every token at once, long before its end: a busy machine must not let the token expire."""
    monkeypatch.setattr(refreshing_module, "refresh_in", lambda left_s, chance: 0.0)


def ending(seconds: float, name: str = "t") -> str:
    """Make a token that expires when the server's clock is at `seconds`."""
    payload = json.dumps({"exp": seconds, "jti": name}).encode()
    return f"e30.{urlsafe_b64encode(payload).decode().rstrip('=')}.sig"


class Tokens:
    """Token source that returns these tokens in order and counts the calls. The last token is repeated."""

    def __init__(self, *tokens: str | Exception) -> None:
        self._tokens = [*tokens]
        self.asked = 0

    async def __call__(self) -> str:
        self.asked += 1
        token = self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]
        if isinstance(token, Exception):
            raise token
        return token


async def grant(peer: Peer, ends_at: int) -> str:
    """Answer a refresh and return its token."""
    command = await peer.next(TokenRefresh)
    peer.reply(command, RefreshReply(ends_at))
    return command.token


@pytest.mark.usefixtures("soon")
@run
async def test_a_new_token_is_brought_before_the_old_one_ends_again_and_again() -> None:
    tokens = Tokens(ending(60, "a"), ending(120, "b"), ending(3600, "c"), ending(7200, "d"))
    async with serving() as server, connected(server, token=tokens) as (me, peer):
        assert await grant(peer, 120_000) == ending(120, "b")
        assert await grant(peer, 3_600_000) == ending(3600, "c")
        assert (await peer.next(TokenRefresh)).token == ending(7200, "d")
        assert (me.state, tokens.asked) == ("connected", 4)


@run
async def test_a_fixed_opaque_or_expired_token_is_not_refreshed() -> None:
    for token in (ending(0.01), lambda: "opaque", lambda: ending(-5)):
        async with serving() as server, connected(server, token=token) as (me, _):
            assert me._session._refreshing is not None
            assert me._session._refreshing._task is None


@pytest.mark.usefixtures("soon")
@run
async def test_an_app_that_cannot_give_a_token_now_is_asked_again() -> None:
    tokens = Tokens(ending(60), OSError("no database"), OSError("no database"), ending(3600, "late"))
    async with serving() as server, connected(server, token=tokens) as (_, peer):
        assert await grant(peer, 3_600_000) == ending(3600, "late")


@run
async def test_an_app_that_gives_the_same_token_is_not_asked_without_end() -> None:
    tokens = Tokens(ending(0.3))
    async with serving() as server, connected(server, token=tokens) as (_, peer):
        for _ in range(2):
            assert await grant(peer, 300) == ending(0.3)
        await asyncio.sleep(0.3)
        assert tokens.asked < 40


@pytest.mark.usefixtures("soon")
@run
async def test_a_server_that_cannot_take_it_now_is_given_it_again() -> None:
    tokens = Tokens(ending(60), ending(3600))
    async with serving() as server, connected(server, token=tokens) as (_, peer):
        peer.error(await peer.next(TokenRefresh), "unavailable", 1)
        await grant(peer, 3_600_000)


@run
async def test_a_refused_new_token_is_reported_and_the_connection_continues() -> None:
    async with serving() as server, connected(server, token=Tokens(ending(0.1), ending(9))) as (me, peer):
        told: asyncio.Queue[Failure] = asyncio.Queue()
        me.on(Failure, told.put_nowait)
        peer.error(await peer.next(TokenRefresh), "forbidden")
        failure = await told.get()
        assert (failure.code, failure.message) == ("forbidden", "the new token was refused: refused: forbidden")
        assert me.state == "connected"


@run
async def test_a_token_that_has_ended_all_the_same_brings_the_client_back_with_another() -> None:
    async with serving() as server, connected(server, token=Tokens(ending(9, "a"), ending(9, "b"))) as (me, peer):
        peer.close(4005, "token expired")
        _, hello = await server.greet()
        assert hello.token == ending(9, "b")
        await state(me, "connected")


@run
async def test_a_program_may_have_it_replaced_at_any_time() -> None:
    tokens = Tokens(ending(3600, "a"), ending(3600, "b"), ending(3600, "c"))
    async with serving() as server, connected(server, token=tokens, backoff=AT_ONCE) as (me, peer):
        assert await both(me.refresh_token(), grant(peer, 3_600_000)) == 3_600_000

        async def refuse() -> None:
            peer.error(await peer.next(TokenRefresh), "forbidden")

        with pytest.raises(CommandRefused):
            await both(me.refresh_token(), refuse())


@run
async def test_there_is_nothing_to_replace_without_a_function_or_a_connection() -> None:
    async with serving() as server, connected(server, token="fixed") as (me, _):
        with pytest.raises(ValueError, match="give Client a function"):
            await me.refresh_token()
    me = Client("ws://127.0.0.1:1/", token=lambda: "t")
    with pytest.raises(Disconnected):
        await me.refresh_token()


@run
async def test_a_token_in_use_is_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    secret = ending(0.1, "do-not-show")
    tokens = Tokens(secret, ValueError(secret), ending(9))
    async with serving() as server, connected(server, token=tokens) as (_, peer):
        await grant(peer, 9_000)
    assert secret not in caplog.text
