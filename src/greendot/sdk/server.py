"""Greendot server, as the backend of an app uses it."""

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
from greendot.sdk.moderation import Moderating
from greendot.sdk.rooms import Rooming
from greendot.sdk.tokens import Claims, mint
from greendot.sdk.users import People


class Server(People, Rooming, Moderating, Inboxes):
    """Greendot server for the backend of an app: `Server("http://127.0.0.1:8000", API_KEY)`.

    Make one per process and use it from any thread: connections are kept and shared. An attempt fails after `timeout`
    seconds without a byte from the server. Temporary failures are retried up to `retries` times, if the request cannot
    take effect twice. The wait that the server asks for is honoured, unless it is longer than `timeout`. Refusals and
    permanent failures raise a ServerError.

    `secret` signs tokens (`auth.secret` of the server). `webhook_secret` is the secret of its webhooks.
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
        """Close the connections. The object may be used again: it opens new ones."""
        self._http.close()

    # Without the network

    def token(self, user: str, *, ttl: float | timedelta = 3600, **claims: Unpack[Claims]) -> str:
        """Return a token for `user`, valid for `ttl` (seconds or timedelta): `server.token("alice", name="Alice")`.

        `rooms` and `watch` are patterns of rooms and users that the token grants. `send=False` makes the token
        read-only; see docs/protocol.md.
        """
        return mint(self._secret, user, ttl, claims)

    def verify_webhook(
        self, body: bytes, headers: Mapping[str, str] | str, *, tolerance_s: float = TOLERANCE_S
    ) -> HookDelivery:
        """Return the content of a webhook that Greendot sent recently. Else raise BadWebhook; answer with 400.

        `body` is the raw request body. `headers` are the headers of the request, or the value of `Greendot-Signature`.
        """
        header = headers if isinstance(headers, str) else _signature(headers)
        try:
            return read_delivery(body, header, self._webhook_secret.text, time.time(), tolerance_s)
        except BadSignature as error:
            raise BadWebhook(str(error)) from None


def _signature(headers: Mapping[str, str]) -> str:
    """Return the signature header in any case: headers of frameworks ignore case, a plain dict does not."""
    return next((value for name, value in headers.items() if name.lower() == SIGNATURE.lower()), "")
