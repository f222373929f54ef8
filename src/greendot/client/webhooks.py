"""Verification of webhooks, for the app that receives them."""

from __future__ import annotations

import time

from greendot import errors
from greendot.client.errors import ClientError
from greendot.protocol.webhooks import TOLERANCE_S, BadSignature, HookDelivery, read_delivery


class BadWebhook(ClientError, errors.BadWebhook):
    """Webhook request that must not be trusted. Answer it with 400."""


def verify_webhook(
    body: bytes, header: str, secret: str, now: float | None = None, tolerance_s: float = TOLERANCE_S
) -> HookDelivery:
    """Return the delivery if `header` (Greendot-Signature) proves that Greendot signed `body` recently.

    Raise BadWebhook otherwise. `body` is the raw request body: decoded and encoded again it has other bytes. `now` is
    in seconds since 1970.
    """
    try:
        return read_delivery(body, header, secret, time.time() if now is None else now, tolerance_s)
    except BadSignature as error:
        raise BadWebhook(str(error)) from None
