"""Devices of users and their push tokens.

Every server checks tokens, so the check loads no provider.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from greendot.clock import Clock
from greendot.errors import Refused
from greendot.ids import Key
from greendot.node.commands import CommandTable, Outcome
from greendot.node.session import Connection, Session
from greendot.protocol import commands as wire
from greendot.protocol.codes import Err
from greendot.protocol.replies import DeviceKeyReply
from greendot.push.providers.webpush_subscription import read_subscription
from greendot.store.push import Device, Provider, PushStore, check_size

MOST_DEVICES = 20  # devices of one user
APNS_TOKEN = re.compile(r"[0-9A-Fa-f]{8,200}")


def check_token(provider: Provider, token: str) -> None:
    """Raise ValueError, with the expected form, if no push could ever be sent to the token."""
    check_size(provider, token)
    if provider == "webpush":
        read_subscription(token)
    elif provider == "apns" and not APNS_TOKEN.fullmatch(token):
        raise ValueError("an APNs token must be 8 to 200 hexadecimal digits")
    elif provider == "fcm" and not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("an FCM token must be printable ASCII without spaces")


class DeviceService:
    """Registry of users' devices, for commands and HTTP routes.

    `public_key` returns the key with which browsers of a tenant subscribe to Web Push; None if that is not set up.
    """

    def __init__(
        self, store: PushStore, clock: Clock, public_key: Callable[[str], str | None] = lambda tenant: None
    ) -> None:
        self._store = store
        self._clock = clock
        self.public_key = public_key
        self.commands: CommandTable = {
            wire.DeviceRegister: self._device_register,
            wire.DeviceRemove: self._device_remove,
            wire.DeviceKey: self._device_key,
        }

    async def _device_register(self, connection: Connection, session: Session, command: wire.DeviceRegister) -> Outcome:
        await self.register(session.key, session.device, command.provider, command.token)
        return None

    async def _device_remove(self, connection: Connection, session: Session, command: wire.DeviceRemove) -> Outcome:
        await self.remove(session.key, session.device)
        return None

    def _device_key(self, connection: Connection, session: Session, command: wire.DeviceKey) -> Outcome:
        return DeviceKeyReply(self.public_key(session.key[0]))

    async def register(self, key: Key, device: str, provider: Provider, token: str) -> bool:
        """Register a device, replacing its previous token; return whether the device or its token is new.

        Beyond the limit, the devices unused for longest are dropped: they were lost, or their apps were installed
        again. Raise Refused if the token is not valid.
        """
        try:
            check_token(provider, token)
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
        """Remove the device; return whether it existed."""
        return await self._store.drop_device(*key, device)

    async def of(self, key: Key) -> list[Device]:
        return await self._store.devices(*key)
