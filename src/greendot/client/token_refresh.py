"""Bringing a new token to the server before the old one ends, without an interruption."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from greendot.client.codec import Failure
from greendot.client.errors import ClientError, CommandRefused
from greendot.client.expiry import expires_at, refresh_in
from greendot.client.link import Link
from greendot.protocol.commands import TokenRefresh
from greendot.protocol.events import Event
from greendot.protocol.replies import RefreshReply

RETRY_S = 5.0  # before the app is asked again for a token it could not give

log = logging.getLogger("greendot.client")


class TokenRefresher:
    """What runs beside one link, of a client whose token comes from a function.

    While no new token is to be had the old one is used to its end; then the server closes with 4005, and the client
    comes back with whatever token it is given then.
    """

    def __init__(self, link: Link, ask: Callable[[], Awaitable[str]], publish: Callable[[Event], None]) -> None:
        self._link = link
        self._ask = ask
        self._publish = publish
        self._task: asyncio.Task[None] | None = None

    def start(self, token: str, server_time: int) -> None:
        """The link was greeted with `token` when the server's clock said `server_time` (ms UTC)."""
        end = expires_at(token)
        if end is not None and end > server_time:
            self._task = asyncio.create_task(self._run(end, server_time), name="greendot client, refreshing")

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def refresh(self) -> int:
        """Replace the token now; when the new one ends (ms UTC)."""
        return (await self._link.request(TokenRefresh(token=await self._ask()), RefreshReply)).expires_at

    async def _run(self, end: float, server_time: float) -> None:
        # By the server's clock, which was right at the welcome, and goes on as the loop's does.
        loop = asyncio.get_running_loop()
        ahead = server_time / 1000 - loop.time()
        wait = refresh_in((end - server_time) / 1000, random.random())
        while True:
            await asyncio.sleep(wait)
            newer = await self._attempt()
            left = max(end, newer or 0) / 1000 - ahead - loop.time()
            if newer is None or left <= 0:
                return
            # Where there is none, or the app gave the one it gave before, there is little time left to ask again.
            wait = refresh_in(left, random.random()) if newer > end else RETRY_S
            end = max(end, newer)

    async def _attempt(self) -> float | None:
        """The end of the new token; 0 if there is none yet; None if there is no sense in asking again."""
        try:
            return await self.refresh()
        except CommandRefused as error:
            if error.retry:
                await asyncio.sleep(RETRY_S if error.retry_in_ms is None else error.retry_in_ms / 1000)
                return 0
            self._publish(Failure(None, error.code, f"the new token was refused: {error.message}", False, None))
            return None
        except ClientError:
            return None  # the link is lost; the next one begins with a token of its own
        except Exception as error:  # of the app's function: it may work again
            log.warning("no new token was to be had: %s", type(error).__name__)
            return 0
