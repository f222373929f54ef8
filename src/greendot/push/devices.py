"""What may be registered as a device's token. Every server checks it, so no provider is loaded for it."""

from __future__ import annotations

import re
from collections.abc import Callable

from greendot.clock import Clock
from greendot.errors import Refused
from greendot.protocol.codes import Err
from greendot.push.providers.webpush_subscription import read_subscription
from greendot.store.port import Key
from greendot.store.push import Device, Provider, PushStore, check_size

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


MOST_DEVICES = 20  # of one user

CheckToken = Callable[[Provider, str], None]  # ValueError, which says what is expected, if it is no token of theirs


class Devices:
    """What becomes of a user's devices."""

    def __init__(self, store: PushStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.check: CheckToken = check_size

    async def register(self, key: Key, device: str, provider: Provider, token: str) -> bool:
        """In place of what it was before. Whether it is new, or has another token. Of more devices than there may be,
        those unused for longest are forgotten: they were lost, or their apps installed anew."""
        try:
            self.check(provider, token)
        except ValueError as error:
            raise Refused(Err.BAD_FIELD, f"field `token`: {error}") from None
        now = self._clock.now_ms()
        is_new = await self._store.put_device(Device(*key, device, provider, token, now, now))
        if is_new:
            others = [one for one in await self._store.devices(*key) if one.device != device]
            others.sort(key=lambda one: one.used_at)
            for one in others[: max(0, len(others) + 1 - MOST_DEVICES)]:
                await self._store.drop_device(*key, one.device)
        return is_new

    async def remove(self, key: Key, device: str) -> bool:
        """Whether it was there."""
        return await self._store.drop_device(*key, device)

    async def of(self, key: Key) -> list[Device]:
        return await self._store.devices(*key)
