"""Port for modes of presence that the app has chosen for users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from greendot.ids import Key
from greendot.presence.mode_model import PresenceMode


class PresenceModeStore(Protocol):
    """Port for modes of presence. Each change is a change of the kind `mode` in `PrivacyStore.changes`."""

    async def put_presence_mode(self, tenant: str, user: str, mode: PresenceMode, *, most: int) -> bool:
        """Set the mode of a user; `auto` removes it.

        Return False, with nothing written, if more than `most` users of the tenant would have a mode.
        """
        ...

    async def presence_modes(self, keys: Sequence[Key]) -> dict[Key, PresenceMode]:
        """Return the modes of these (tenant, user), in one read. Users without a mode are left out."""
        ...

    async def presence_modes_in(self, tenants: Sequence[str]) -> dict[Key, PresenceMode]:
        """Return the modes of all users of these tenants, in one read. Users without a mode are left out."""
        ...
