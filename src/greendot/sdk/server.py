"""What the backend of an app holds: its Greendot server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self, Unpack

from greendot.errors import BadWebhook
from greendot.protocol.webhooks import SIGNATURE, TOLERANCE_S, BadSignature, HookDelivery, read_delivery
from greendot.sdk.http import Hidden, Http, Patience
from greendot.sdk.inbox import Inboxes
from greendot.sdk.rooms import Rooming
from greendot.sdk.tokens import Claims, mint
from greendot.sdk.users import People


class Server(People, Rooming, Inboxes):
    """A Greendot server, as the backend of an app sees it: `Server("http://127.0.0.1:8000", API_KEY)`.

    Make one for the process and use it from any thread: connections are kept and shared. A try is given up when nothing
    is heard for `timeout` seconds. What fails for a moment is tried again up to `retries` times, where that cannot do a
    thing twice; the server's wish to wait is honoured, unless it is longer than `timeout`. What is refused, or fails
    for good, raises a ServerError.

    `secret` is the one tokens are signed with (`auth.secret` of the server), `webhook_secret` the one its webhooks are.
    """

    def __init__(
        self,
        url: str,
        api_key: str = "",
        *,
        secret: str = "",
        webhook_secret: str = "",
        timeout: float = 10.0,
        retries: int = 2,
    ) -> None:
        self._secret = Hidden(secret)
        self._webhook_secret = Hidden(webhook_secret)
        self._http = Http(url, api_key, Patience(retries=retries, timeout_s=timeout))

    def __repr__(self) -> str:
        return f"Server({self._http.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. The server may be used again: it makes new ones."""
        self._http.close()

    # Without the network

    def token(self, user: str, *, ttl: float | timedelta = 3600, **claims: Unpack[Claims]) -> str:
        """A token for `user` that holds for `ttl` (seconds, or a timedelta): `server.token("alice", name="Alice")`.

        `rooms` and `watch` are patterns of what it opens, `send=False` lets it only listen; see docs/protocol.md.
        """
        return mint(self._secret, user, ttl, claims)

    def verify_webhook(
        self, body: bytes, headers: Mapping[str, str] | str, *, tolerance_s: float = TOLERANCE_S
    ) -> HookDelivery:
        """What a webhook says, if Greendot sent it about now; else BadWebhook, which is to be answered with 400.

        `body` is the request's, byte for byte; `headers` are the request's, or the value of `Greendot-Signature`.
        """
        header = headers if isinstance(headers, str) else _signature(headers)
        try:
            return read_delivery(body, header, self._webhook_secret.text, time.time(), tolerance_s)
        except BadSignature as error:
            raise BadWebhook(str(error)) from None


def _signature(headers: Mapping[str, str]) -> str:
    """Frameworks' headers are found in any case; those of a plain dict are looked for."""
    return next((value for name, value in headers.items() if name.lower() == SIGNATURE.lower()), "")
