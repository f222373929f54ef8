"""An app that is asked: one request, signed as webhooks are, one answer or none."""

from __future__ import annotations

from collections.abc import Sequence

from greendot.clock import Clock
from greendot.core.addresses import Network, networks
from greendot.outbound import Caller, NotCalled, Terms
from greendot.protocol.webhooks import SIGNATURE, signature

# The operator says where it is: it may be a neighbour. What is outside is called by TLS only.
NEIGHBOURS = networks(["127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7"])


class AskedApp:
    """Asks one URL. `also` are further networks that may be called."""

    def __init__(
        self, url: str, secret: str, timeout_s: float, clock: Clock, *, also: Sequence[Network] = (), ca_file: str = ""
    ) -> None:
        terms = Terms(allowed=[*NEIGHBOURS, *also], timeout_s=timeout_s, ca_file=ca_file)
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
