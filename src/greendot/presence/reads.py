"""Replies to `presence.get`: the users' states now, without watching them.

A reply may have 10,000 entries. It is read and encoded in slices. Entries of users whose visibility has changed
meanwhile are made again, so that the reply shows no user who was hidden before the reply is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence

from msgspec import Raw

from greendot.auth.model import Grants
from greendot.engine.messages import Topic
from greendot.engine.port import Engine
from greendot.ids import Key
from greendot.node.session import Session
from greendot.node.subscriptions import Subscriptions
from greendot.node.time_slices import STEP, TimeSlices
from greendot.presence.celebrities import Celebrities
from greendot.presence.hidden_watchers import HiddenWatchers, unknown_presence
from greendot.presence.last_seen import LastSeenReader
from greendot.presence.last_seen_model import is_unknown
from greendot.presence.model import Snapshot, VisibleState, ordered, project, restored_order, without_last_seen
from greendot.presence.modes import PresenceModes
from greendot.presence.profile_model import NO_PROFILE
from greendot.presence.profiles import ProfileService
from greendot.presence.status import StatusService
from greendot.presence.watched_user import WatchedUser
from greendot.protocol.codec import encode_part, joined
from greendot.protocol.events import Presence
from greendot.visibility.cache import VisibilityCache


class PresenceSnapshots:
    """Reader of user snapshots. `watched` returns the node's copy of a user with local watchers."""

    def __init__(
        self,
        engine: Engine,
        statuses: StatusService,
        last_seen: LastSeenReader,
        profiles: ProfileService,
        watched: Callable[[Topic], WatchedUser | None],
    ) -> None:
        self._engine = engine
        self._statuses = statuses
        self._last_seen = last_seen
        self.profiles = profiles
        self._watched = watched

    async def read(self, tenant: str, users: Sequence[str]) -> list[Snapshot]:
        """Return a snapshot per user, in order. For a stale snapshot, use what this node knows of the user.

        Profiles are read last, so a caller that awaits nothing else can keep the profiles.
        """
        found = await self.read_shared(tenant, users)
        if any(snapshot.stale for snapshot in found):
            found = [
                self._known_here(tenant, user, snapshot) if snapshot.stale else snapshot
                for user, snapshot in zip(users, found, strict=True)
            ]
        if self.profiles.matter(tenant) and (profiles := await self.profiles.read(tenant, users)):
            return [
                its._replace(profile=profiles[user]) if user in profiles else its
                for user, its in zip(users, found, strict=True)
            ]
        return found

    async def with_profile(self, key: Key, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot of a user with the user's profile."""
        found = await self.profiles.read(key[0], [key[1]])
        return snapshot._replace(profile=found.get(key[1], NO_PROFILE))

    async def read_shared(self, tenant: str, users: Sequence[str], but: Container[str] = ()) -> list[Snapshot]:
        """Return the engine's snapshots. Users whom the engine does not know get the last-seen time of the store.

        Users in `but` get no such time. The engine is read again after the store: a user may have come online
        meanwhile, and clients show an entry with version 0 even if they have a newer entry.
        """
        found = await self._engine.read(tenant, users)
        of = zip(users, found, strict=True)
        unknown = [
            (tenant, user) for user, its in of if not its.visible.version and is_unknown(its) and user not in but
        ]
        if not unknown:
            return found
        times = self._last_seen.cached(unknown)
        missing = [key for key in unknown if key not in times]
        if missing and (read := await self._last_seen.read(missing)) is not None:
            times.update(read)
            again = dict(zip(missing, await self._engine.read(tenant, [user for _, user in missing]), strict=True))
            found = [again.get((tenant, user), its) for user, its in zip(users, found, strict=True)]
        complete = self._last_seen.complete
        return [complete(its, times.get((tenant, user))) for user, its in zip(users, found, strict=True)]

    async def without_hidden(
        self, tenant: str, users: Sequence[str], found: Sequence[Snapshot], shown: Sequence[VisibleState]
    ) -> list[Snapshot]:
        """Return snapshots that were read after a loss, with the shown state of each user who is invisible.

        After a failover to older data, the engine may have the state from before a user became invisible. The user's
        node restores the status, but at the moment it may be paused or cut off. So a user who is shown as offline, and
        would become visible by an older state, is compared with the store.
        """
        doubted = {
            (tenant, user)
            for user, its, before in zip(users, found, shown, strict=True)
            if before.state == "offline" != its.visible.state and its.visible.version < before.version
        }
        stored, now = await self._statuses.read_ahead([*doubted]), self._engine.now_ms()

        def is_invisible(key: Key) -> bool:
            manual = stored(key) if key in doubted else None
            return manual is not None and manual.status == "invisible" and (manual.until is None or manual.until > now)

        return [
            its._replace(visible=before) if is_invisible((tenant, user)) else its
            for user, its, before in zip(users, found, shown, strict=True)
        ]

    def order(self, tenant: str, users: Sequence[str]) -> Sequence[int]:
        """Return positions of users in the order in which to read them in slices; see `PresenceEngine.order`."""
        return self._engine.order(tenant, users) if len(users) > STEP else range(len(users))

    def is_restoring(self, tenant: str, user: str) -> bool:
        """Return whether a snapshot of this user would be stale."""
        return self._engine.is_restoring(tenant, user)

    def _known_here(self, tenant: str, user: str, snapshot: Snapshot) -> Snapshot:
        watched = self._watched(Topic("watch", tenant, user))
        if watched is not None and watched.opening is None and not watched.stale:
            return Snapshot(watched.visible, watched.own, watched.name, watched.devices, stale=True)
        return self._statuses.with_sessions((tenant, user), snapshot)


Found = Snapshot | WatchedUser  # state from the engine; for a polled user, this node's copy


async def watchable(slices: TimeSlices, grants: Grants, users: Sequence[str]) -> Collection[str]:
    """Return the users that the grants allow to watch, found in slices: a token may have 100 patterns."""
    if grants.watch is None:
        return dict.fromkeys(users)
    allowed: dict[str, None] = {}
    async for some in slices.cut(users, max(1, STEP // (1 + len(grants.watch)))):
        allowed.update(dict.fromkeys(user for user in some if grants.may_watch(user)))
    return allowed


class PresenceReads:
    """Reads of `presence.get` on this node. `snapshot` returns the entry of a followed user for a session."""

    def __init__(
        self,
        snapshots: PresenceSnapshots,
        followed: tuple[Subscriptions[WatchedUser], HiddenWatchers, Celebrities, PresenceModes],
        visibility: VisibilityCache,
        slices: TimeSlices,
        snapshot: Callable[[WatchedUser, Session], Presence],
        watched_by: Callable[[Session, str], WatchedUser | None],
        owe: Callable[[WatchedUser, Session], None],
    ) -> None:
        """`watched_by` returns a user whom the session's connection watches.

        `owe` is called for such a user if the reply marks the state as stale.
        """
        self._snapshots = snapshots
        self._watched, self._hidden_watchers, self._celebrities, self._modes = followed
        self._visibility = visibility
        self._slices = slices
        self._snapshot = snapshot
        self._watched_by = watched_by
        self._owe = owe

    async def read(self, session: Session, users: list[str]) -> Raw:
        """Return the users' states, in the order of `users`."""
        tenant, viewer, visibility = session.tenant, session.user, self._visibility
        order = self._snapshots.order(tenant, users)
        users = [*ordered(users, order)]
        allowed, many = await watchable(self._slices, session.grants, users), len(users) > STEP
        await visibility.know_many(tenant, viewer, users)
        decided = visibility.decided(tenant)
        found: list[Found] = []
        entries: list[bytes] = []
        stale: set[int] = set()  # numbers of entries with the mark

        def encode(number: int) -> bytes:
            shown = self._shown(session, users[number], found[number], allowed)
            (stale.add if shown.stale is True else stale.discard)(number)
            return encode_part(shown)

        with self._snapshots.profiles.watching() as changed:
            async for some in self._slices.cut(users):
                found += await self._read_some(session, some, allowed)
                if many:
                    await self._slices.turn()  # reads of other commands may end in the same turn: share its loop time
                await visibility.learn(tenant, [viewer], some)
                entries += [encode(number) for number in range(len(entries), len(found))]
            if many:
                await self._slices.turn()  # joining so many entries takes time too
            while again := {*visibility.decided_since(tenant, viewer, users, decided)}.union(
                await self._read_changed(session, users, found, changed),
                self._known_again(session, users, found, stale),
            ):
                decided = visibility.decided(tenant)
                async for numbers in self._slices.cut([*again]):
                    await visibility.learn(tenant, [viewer], [users[number] for number in numbers])
                    for number in numbers:
                        entries[number] = encode(number)
            for number in stale:  # in the turn in which the reply is sent
                if (watched := self._watched_by(session, users[number])) is not None:
                    self._owe(watched, session)
        return joined("presence", restored_order(entries, order))

    def _known_again(self, session: Session, users: Sequence[str], found: list[Found], stale: set[int]) -> list[int]:
        """Take this node's copy of users whose entries are stale, and whose states are known again. Return the numbers.

        A watcher may have got the state already, and the reply must not mark it as stale afterwards.
        """
        known = []
        for number in stale:
            watched = self._watched_by(session, users[number])
            if watched is not None and not watched.is_doubtful and not self._snapshots.is_restoring(*watched.key):
                found[number] = watched
                known.append(number)
        return known

    async def _read_changed(
        self, session: Session, users: Sequence[str], found: list[Found], changed: set[Key]
    ) -> list[int]:
        """Read profiles again that changed since they were read; return the positions of their users.

        A watcher may have got the change already, and the reply must not be older.
        """
        if not changed:
            return []
        concerned = {user for tenant, user in changed if tenant == session.tenant}
        changed.clear()
        numbers = [
            number for number, user in enumerate(users) if user in concerned and isinstance(found[number], Snapshot)
        ]
        profiles = await self._snapshots.profiles.read(session.tenant, [users[number] for number in numbers])
        for number in numbers:
            if isinstance(its := found[number], Snapshot):
                found[number] = its._replace(profile=profiles.get(users[number], NO_PROFILE))
        return numbers

    async def _read_some(self, session: Session, users: Sequence[str], allowed: Collection[str]) -> list[Found]:
        await self._visibility.learn(session.tenant, [session.user], users)
        visible = {user for user in users if user in allowed and self._may_see(session, user)}
        polled = await self._open_polled(session.tenant, visible)
        # Hidden users are read under impossible names: the read takes as long as for unknown users.
        names = [user if user in visible else f".{user}" for user in users if user not in polled]
        snapshots = iter(await self._snapshots.read(session.tenant, names) if names else ())
        return [polled[user] if user in polled else next(snapshots) for user in users]

    def _shown(self, session: Session, user: str, found: Found, allowed: Collection[str]) -> Presence:
        """Return the entry for the session, by the facts known now."""
        if user == session.user and isinstance(found, Snapshot):
            return project(user, found, own=True)
        if user not in allowed:
            return unknown_presence(user)
        tenant = session.tenant
        sight = self._visibility.see(tenant, session.user, user)
        if sight == "hidden":
            return self._hidden(session, user)
        if isinstance(found, WatchedUser):
            return self._snapshot(found, session)
        shown = project(user, self._newest(tenant, user, found))
        return shown if sight == "full" else without_last_seen(shown)

    def _newest(self, tenant: str, user: str, found: Snapshot) -> Snapshot:
        """Return the snapshot; if this node's copy of a watched user is newer, return the snapshot with this copy.

        The session may have got the state of the copy already. It may have changed after the read. Or the engine has
        lost it, and has an older one with which the user looks the same to others, such as an invisible user. The
        engine may also have forgotten the user on purpose. The version is then 0, and the snapshot stays as it is.
        """
        watched = self._watched.get(Topic("watch", tenant, user))
        if watched is None or not 0 < found.visible.version < watched.visible.version:
            return found
        name, stale = watched.name or found.name, found.stale or watched.stale
        return found._replace(visible=watched.visible, name=name, devices=watched.devices, stale=stale)

    def _may_see(self, session: Session, user: str) -> bool:
        return self._visibility.see(session.tenant, session.user, user) != "hidden"

    def _hidden(self, session: Session, user: str) -> Presence:
        watched = self._watched.get(Topic("watch", session.tenant, user))
        is_restoring = self._snapshots.is_restoring(session.tenant, user)
        if watched is None:
            return unknown_presence(user, stale=is_restoring)
        return self._hidden_watchers.snapshot(watched, session.connection, stale=watched.stale or is_restoring)

    async def _open_polled(self, tenant: str, users: Iterable[str]) -> dict[str, WatchedUser]:
        """Follow those of the users who are polled, and return their state on this node."""
        await self._modes.know(tenant)
        celebrities = self._celebrities
        if not celebrities.polls_any(tenant):
            return {}
        topics = {user: Topic("watch", tenant, user) for user in users if celebrities.is_polled((tenant, user))}
        await self._watched.open([*topics.values()])
        found = {user: self._watched.get(topic) for user, topic in topics.items()}
        return {user: watched for user, watched in found.items() if watched is not None}
