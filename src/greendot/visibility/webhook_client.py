"""HTTP client of webhooks that the app answers: about visibility, and before publishing.

A call is one request, signed as webhooks are, with one answer or none.
"""

from __future__ import annotations

from greendot.clock import Clock
from greendot.protocol.webhooks import SIGNATURE, signature
from greendot.transport.http_client import Caller, NotCalled, Terms


class HttpVisibilityClient:
    """Client of one URL, called on the same terms as webhooks."""

    def __init__(self, url: str, secret: str, terms: Terms, clock: Clock, *, most: int = 4) -> None:
        self._caller = Caller(url, terms, most=most)
        self._secret = secret
        self._clock = clock

    async def ask(self, body: bytes) -> bytes:
        """Return the answer to a request, which is UTF-8.

        Raise NotCalled if the answer is late, if its status is not 200, or if it is not UTF-8: its parts are passed on
        to clients, which would close their connections.
        """
        signed = signature([self._secret], self._clock.now_ms() // 1000, body)
        answer = await self._caller.post(body, {SIGNATURE: signed})
        if answer.status != 200:
            raise NotCalled(f"{self._caller.host} answered {answer.status}, expected 200")
        try:
            answer.body.decode()
        except UnicodeDecodeError:
            raise NotCalled(f"{self._caller.host} answered text that is not UTF-8") from None
        return answer.body

    async def close(self) -> None:
        await self._caller.close()
