"""For the app that receives webhooks: whether one is Greendot's, and what it says."""

from __future__ import annotations

import time

from greendot import errors
from greendot.client.errors import ClientError
from greendot.protocol.webhooks import TOLERANCE_S, BadSignature, HookDelivery, read_delivery


class BadWebhook(ClientError, errors.BadWebhook):
    """A request that must not be believed. Answer it with 400."""


def verify_webhook(
    body: bytes, header: str, secret: str, now: float | None = None, tolerance_s: float = TOLERANCE_S
) -> HookDelivery:
    """What was sent, if `header` (Greendot-Signature) shows that Greendot sent these bytes about now; else BadWebhook.

    `body` is the request's, byte for byte: decoded and encoded again it is another one. `now` is in seconds since 1970.
    """
    try:
        return read_delivery(body, header, secret, time.time() if now is None else now, tolerance_s)
    except BadSignature as error:
        raise BadWebhook(str(error)) from None
