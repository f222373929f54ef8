"""Port for profiles: names and info of users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from greendot.ids import Key
from greendot.presence.profile_model import Profile, ProfileChange


class ProfileStore(Protocol):
    """Port for profiles. Each change is also a change of the kind `info` in `PrivacyStore.changes`."""

    async def put_profile(self, tenant: str, user: str, change: ProfileChange) -> Profile | None:
        """Write the change and return the profile with its new revision.

        Return None, with nothing written, if the change is `only_newer` and the profile has changed after it.
        """
        ...

    async def profiles(self, keys: Sequence[Key]) -> dict[Key, Profile]:
        """Return the profiles of these (tenant, user), in one read. Users without a profile are left out."""
        ...
