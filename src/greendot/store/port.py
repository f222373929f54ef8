"""Store port: durable records.

Every adapter passes `greendot.testing.store_suite` unchanged. These rules hold for all methods:

- A method that returns has committed. A method that raises `StoreUnavailable` may have committed or not; a write that
  is repeated with the same key is made once. `Unstorable` means that the store cannot hold a value: nothing was
  written, and a retry fails again.
- A **stream** (a room, a user's inbox) is numbered 1, 2, 3 … without gaps, in commit order. Its counters change in the
  transaction that changes the rows they count.
- Concurrent writers share a commit. A write that cannot be made fails alone.
- No single transition of a user writes to the store. Last-seen times are written in batches, off the path of a change.

Times are milliseconds UTC and come from the caller.
"""

from __future__ import annotations

from typing import Protocol

from greendot.store.api_keys import KeyStore, TenantStore
from greendot.store.audit import AuditStore
from greendot.store.inbox import InboxStore
from greendot.store.jobs import JobStore
from greendot.store.last_seen import LastSeenStore
from greendot.store.markers import MarkerStore
from greendot.store.moderation import ModerationStore
from greendot.store.pages import SnapshotStore
from greendot.store.presence_modes import PresenceModeStore
from greendot.store.profiles import ProfileStore
from greendot.store.push import PushStore
from greendot.store.restrictions import RestrictionStore
from greendot.store.revocations import RevocationStore
from greendot.store.rooms import MessageStore, RoomStore
from greendot.store.status import StatusStore
from greendot.store.user_data import UserDataStore
from greendot.store.visibility import PrivacyStore
from greendot.store.webhooks import HookStore


class Store(
    RoomStore,
    MarkerStore,
    MessageStore,
    InboxStore,
    SnapshotStore,
    StatusStore,
    ProfileStore,
    LastSeenStore,
    PresenceModeStore,
    PrivacyStore,
    KeyStore,
    TenantStore,
    UserDataStore,
    HookStore,
    RevocationStore,
    PushStore,
    JobStore,
    AuditStore,
    ModerationStore,
    RestrictionStore,
    Protocol,
):
    """Port for all records, with start and close."""

    async def start(self) -> None:
        """Open the store.

        ConfigError if its file or database cannot be used, or if its tables have another version and are not migrated.
        """
        ...

    async def migrate(self) -> list[str]:
        """Apply missing migrations, without `start`; return their names. Safe when called by several processes."""
        ...

    async def close(self) -> None: ...

    async def ping(self) -> None:
        """Raise StoreUnavailable unless the store responds."""
        ...
