"""Port for the status that a user has set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from greendot.ids import Key
from greendot.presence.model import ManualStatus


class StatusStore(Protocol):
    """Port for statuses that users set themselves."""

    async def put_status(self, tenant: str, user: str, manual: ManualStatus) -> ManualStatus:
        """Write the status and return it with the next revision. The revision of `manual` is ignored."""
        ...

    async def statuses(self, keys: Sequence[Key]) -> dict[Key, ManualStatus]:
        """Return the statuses of these (tenant, user), in one read. Users who never set one are left out."""
        ...
