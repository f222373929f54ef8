"""What may be registered as a device's token. Every server checks it, so no provider is loaded for it."""

from __future__ import annotations

import re

from greendot.push.providers.subscription import read_subscription
from greendot.store.push import Provider, check_size

APNS_TOKEN = re.compile(r"[0-9A-Fa-f]{8,200}")


def check_token(provider: Provider, token: str) -> None:
    """ValueError, which says what is expected, if it can be seen that nothing could ever be sent to it."""
    check_size(provider, token)
    if provider == "webpush":
        read_subscription(token)
    elif provider == "apns" and not APNS_TOKEN.fullmatch(token):
        raise ValueError("a token of APNs is in hexadecimal digits")
    elif provider == "fcm" and not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("a token of FCM is in ASCII characters without spaces")
