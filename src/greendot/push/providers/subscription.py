"""What a browser gives an app so that it can be pushed to (W3C Push API)."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from greendot.protocol.decoding import decoder
from greendot.push.providers.webpush_subscription import Recipient

MOST_ENDPOINT = 2_000  # characters


class Keys(Struct, frozen=True):
    """A browser's, in URL-safe base64."""

    p256dh: str
    auth: str


class Subscription(Struct, frozen=True):
    """What a browser's `PushSubscription` is as JSON; a device's token is this text."""

    endpoint: str
    keys: Keys


decode_subscription = decoder(Subscription)


def read_subscription(token: str) -> tuple[Subscription, Recipient]:
    """ValueError, in words that say nothing of what is in it."""
    try:
        found = decode_subscription(token)
    except msgspec.DecodeError:
        raise ValueError("it is not a PushSubscription as JSON, with endpoint, keys.p256dh and keys.auth") from None
    if len(found.endpoint) > MOST_ENDPOINT or not (found.endpoint.isascii() and found.endpoint.isprintable()):
        raise ValueError("the endpoint is not a URL")
    try:
        parts = urlsplit(found.endpoint)
        is_good = parts.scheme == "https" and parts.hostname and parts.username is None and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or set(found.endpoint) & {" ", "\\", "#"}:
        raise ValueError("the endpoint is not an https URL of a push service")
    return found, Recipient(found.keys.p256dh, found.keys.auth)
