"""The store port: what must survive.

Every adapter passes `greendot.testing.store_suite` unchanged. What holds for all of it:

- A method that returns has committed; one that raises `StoreUnavailable` may or may not have. Said again with the same
  key, a write is made once. `Unstorable`: a value it cannot hold; nothing was written, and trying again is no use.
- A **stream** (a room, a user's inbox) is numbered 1, 2, 3 … without gaps, in the order it is committed. Its counters
  change in the transaction that changes what they count.
- Concurrent writers share a commit. One whose write cannot be made fails alone.
- Going online or offline writes nothing here.

Times are milliseconds UTC and come from the caller.
"""

from __future__ import annotations

from typing import Protocol

from greendot.store.api_keys import KeyStore, TenantStore
from greendot.store.inbox import InboxStore
from greendot.store.jobs import JobStore
from greendot.store.pages import SnapshotStore
from greendot.store.push import PushStore
from greendot.store.revocations import RevocationStore
from greendot.store.rooms import MessageStore, RoomStore
from greendot.store.status import StatusStore
from greendot.store.user_data import UserDataStore
from greendot.store.visibility import PrivacyStore
from greendot.store.webhooks import HookStore


class Store(
    RoomStore,
    MessageStore,
    InboxStore,
    SnapshotStore,
    StatusStore,
    PrivacyStore,
    KeyStore,
    TenantStore,
    UserDataStore,
    HookStore,
    RevocationStore,
    PushStore,
    JobStore,
    Protocol,
):
    """All of it, and its life."""

    async def start(self) -> None:
        """Open. ConfigError if the place cannot be used, or its tables are of another version and stay so."""
        ...

    async def migrate(self) -> list[str]:
        """Bring the tables up to date, without `start`; the names of what was missing. Several may at once."""
        ...

    async def close(self) -> None: ...

    async def ping(self) -> None:
        """Raise StoreUnavailable unless the store answers."""
        ...
