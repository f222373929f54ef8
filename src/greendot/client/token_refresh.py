"""Refresh of tokens: the server gets a new token before the old one expires, without an interruption."""

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

RETRY_S = 5.0  # seconds before the app's function is called again after a failure

log = logging.getLogger("greendot.client")


class TokenRefresher:
    """Refresher of the token of one link, for a client whose tokens come from a function.

    Without a new token, the old one is used until it expires. Then the server closes with 4005, and the client returns
    with the token it gets then.
    """

    def __init__(self, link: Link, ask: Callable[[], Awaitable[str]], publish: Callable[[Event], None]) -> None:
        self._link = link
        self._ask = ask
        self._publish = publish
        self._task: asyncio.Task[None] | None = None

    def start(self, token: str, server_time: int) -> None:
        """Schedule the refresh of `token`; the welcome came at `server_time` (ms UTC) on the server's clock."""
        end = expires_at(token)
        if end is not None and end > server_time:
            self._task = asyncio.create_task(self._run(end, server_time), name="greendot client, refreshing")

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def refresh(self) -> int:
        """Replace the token now; return the expiry of the new one (ms UTC)."""
        return (await self._link.request(TokenRefresh(token=await self._ask()), RefreshReply)).expires_at

    async def _run(self, end: float, server_time: float) -> None:
        # By the server's clock, which was exact at the welcome and advances like the loop's clock.
        loop = asyncio.get_running_loop()
        ahead = server_time / 1000 - loop.time()
        wait = refresh_in((end - server_time) / 1000, random.random())
        while True:
            await asyncio.sleep(wait)
            newer = await self._attempt()
            left = max(end, newer or 0) / 1000 - ahead - loop.time()
            if newer is None or left <= 0:
                return
            # Without a new token, or with the same one again, little time is left: retry soon.
            wait = refresh_in(left, random.random()) if newer > end else RETRY_S
            end = max(end, newer)

    async def _attempt(self) -> float | None:
        """Return the expiry of the new token; 0 if there is none yet; None if a retry is pointless."""
        try:
            return await self.refresh()
        except CommandRefused as error:
            if error.retry:
                await asyncio.sleep(RETRY_S if error.retry_in_ms is None else error.retry_in_ms / 1000)
                return 0
            self._publish(Failure(None, error.code, f"the new token was refused: {error.message}", False, None))
            return None
        except ClientError:
            return None  # the link is lost; the next one starts with a token of its own
        except Exception as error:  # error of the app's function, which may work again
            log.warning("no new token was to be had: %s", type(error).__name__)
            return 0
