"""Names and info of occupants: in pages of `room.present`, and announced when they change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import groupby

from msgspec import UNSET, structs

from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable
from greendot.ids import Key
from greendot.node.context import NodeContext
from greendot.node.time_slices import STEP
from greendot.presence.profile_model import Profile, shown_name
from greendot.presence.profiles import ProfileService
from greendot.protocol.replies import PresentReply, UserProfile
from greendot.rooms.local_room import LocalRoom


class RoomProfiles:
    """Profiles of occupants. `rooms_of` returns the rooms of a tenant on this node."""

    def __init__(
        self,
        engine: Engine,
        context: NodeContext,
        profiles: ProfileService,
        rooms_of: Callable[[str], Awaitable[list[LocalRoom]]],
        known: Callable[[], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._context = context
        self._profiles = profiles
        self._rooms_of = rooms_of
        self._known = known  # waits until this node knows all removals from rooms (`visibility.freshness`)

    async def named(self, tenant: str, users: Sequence[str]) -> dict[str, UserProfile]:
        """Return the names and info of these users; those with neither are left out."""
        await self._profiles.learn(tenant, users)
        names = await self._names(tenant, [user for user in users if self._profiles.of(tenant, user).name is None])
        profiles = {user: self._profiles.of(tenant, user) for user in users}  # after the read of names
        found = {user: UserProfile(shown_name(its, names.get(user)), its.wire) for user, its in profiles.items()}
        return {user: its for user, its in found.items() if its.name is not None or its.info is not UNSET}

    def refreshed(self, tenant: str, found: PresentReply) -> PresentReply:
        """Return a page with the newest profiles, just before it is sent: clients may have got a newer one already."""
        if not self._profiles.matter(tenant):
            return found
        profiles = dict(found.profiles)
        for user in found.users:
            if (its := self._profiles.of(tenant, user)).rev:
                name = profiles[user].name if user in profiles else None
                profiles[user] = UserProfile(shown_name(its, name), its.wire)
        return structs.replace(found, profiles=profiles)

    async def _names(self, tenant: str, users: Sequence[str]) -> dict[str, str | None]:
        """Return the names in the tokens: of sessions on this node, and those that the engine has of others."""
        names: dict[str, str | None] = {}
        elsewhere = []
        for user in users:
            if sessions := self._context.registry.sessions_of(tenant, user):
                names[user] = sessions[0].grants.name
            else:
                elsewhere.append(user)
        if elsewhere:
            try:
                snapshots = await self._engine.read(tenant, elsewhere)
            except EngineUnavailable:
                return names  # the page is complete without names
            names.update((user, its.name) for user, its in zip(elsewhere, snapshots, strict=True))
        return names

    # --- changes (`ProfileConsumer`) ---

    async def doubt_profiles(self, tenant: str) -> Collection[str]:
        """Return no users: occupants are among the profiles that the service knows."""
        return ()

    async def profiles_changed(self, changed: Mapping[Key, Profile], known: Collection[Key]) -> None:
        """Announce changed profiles to the rooms on this node that the users are in, in slices."""
        for tenant, keys in groupby(sorted(changed.keys() - known), key=lambda key: key[0]):
            users = [user for _, user in keys]
            rooms, looked = await self._rooms_of(tenant), 0
            for local in rooms:
                looked += len(users)
                if looked > STEP:
                    looked = 0
                    await self._context.slices.turn()
                if found := [user for user in users if user in local.present.users]:
                    await self._announce(local, {user: changed[tenant, user] for user in found})

    async def _announce(self, local: LocalRoom, profiles: Mapping[str, Profile]) -> None:
        unnamed = [user for user, profile in profiles.items() if profile.name is None]
        names = await self._names(local.channel.topic.tenant, unnamed)
        await self._known()
        for user, profile in profiles.items():
            local.present.announce_profile(user, UserProfile(shown_name(profile, names.get(user)), profile.wire))
