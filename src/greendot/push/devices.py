"""What may be registered as a device's token."""

from __future__ import annotations

from greendot.push import apns
from greendot.push.webpush import read_subscription
from greendot.store.pushes import Provider, check_size


def check_token(provider: Provider, token: str) -> None:
    """ValueError, which says what is expected, if it can be seen that nothing could ever be sent to it."""
    check_size(provider, token)
    if provider == "webpush":
        read_subscription(token)
    elif provider == "apns" and not apns.TOKEN.fullmatch(token):
        raise ValueError("a token of APNs is in hexadecimal digits")
    elif provider == "fcm" and not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("a token of FCM is in ASCII characters without spaces")
