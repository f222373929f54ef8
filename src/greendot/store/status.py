"""Port: the status that a user has set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from greendot.ids import Key
from greendot.presence.model import ManualStatus


class StatusStore(Protocol):
    """What users set by hand."""

    async def put_status(self, tenant: str, user: str, manual: ManualStatus) -> ManualStatus:
        """Keep it; the returned copy carries the next revision (the given one is not looked at)."""
        ...

    async def statuses(self, keys: Sequence[Key]) -> dict[Key, ManualStatus]:
        """The settings of these (tenant, user), in one read; who never set one is left out."""
        ...
