"""An app that is asked: one request, signed as webhooks are, one answer or none."""

from __future__ import annotations

from greendot.clock import Clock
from greendot.protocol.webhooks import SIGNATURE, signature
from greendot.transport.http_client import Caller, NotCalled, Terms


class HttpVisibilityClient:
    """Asks one URL, on the terms webhooks are called on."""

    def __init__(self, url: str, secret: str, terms: Terms, clock: Clock) -> None:
        self._caller = Caller(url, terms, most=4)
        self._secret = secret
        self._clock = clock

    async def ask(self, body: bytes) -> bytes:
        """The answer to a request. NotCalled if there was none in time, or it was not a good one."""
        signed = signature([self._secret], self._clock.now_ms() // 1000, body)
        answer = await self._caller.post(body, {SIGNATURE: signed})
        if answer.status != 200:
            raise NotCalled(f"{self._caller.host} answered {answer.status}")
        return answer.body

    async def close(self) -> None:
        await self._caller.close()
