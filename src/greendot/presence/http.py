"""HTTP routes of presence, sessions, status and modes of presence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock
from greendot.engine.port import Engine
from greendot.engine.results import CURSOR
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.http.request import Body, json
from greendot.ids import ID_PATTERN
from greendot.limits.rate_limits import RateLimits
from greendot.node.time_slices import TimeSlices
from greendot.presence.mode_model import PresenceMode
from greendot.presence.model import ManualStatus, ordered, project, restored_order
from greendot.presence.modes import PresenceModes
from greendot.presence.profile_model import NO_PROFILE, Profile, ProfileChange
from greendot.presence.reads import PresenceSnapshots
from greendot.presence.status import StatusService
from greendot.protocol.codec import encode_part, joined
from greendot.protocol.commands import Status, StatusEnd, StatusText, Users
from greendot.protocol.events import Presence
from greendot.protocol.fields import about
from greendot.protocol.replies import PresenceReply, SessionsReply, StatusReply, UserProfile
from greendot.protocol.tokens import Text, encoded_info
from greendot.store.profiles import ProfileStore

MOST_TENANTS = 10_000  # maximum number of entries of `PresenceRoutes._work`

ModeField = Annotated[
    PresenceMode,
    about(
        "How changes reach the watchers of the user. `auto`: the number of watchers on a node decides. "
        "`live`: the server always sends changes. `poll`: watchers poll, and see `recently_active`."
    ),
]


class QueryPresence(Body):
    """Users whose presence is requested."""

    users: Annotated[Users, about("Ids of the users.")]


class SetStatus(Body):
    """Status of a user, as the user could set it."""

    status: Status = "auto"
    until: StatusEnd = None
    text: StatusText = None


class PutInfo(Body):
    """Name and info of a user."""

    name: Annotated[
        Text | UnsetType | None, about("Display name, instead of the name in the user's tokens; null or empty: none.")
    ] = UNSET
    info: Annotated[
        dict[str, Any] | UnsetType | None,
        about("JSON object of at most 1,024 bytes, such as avatar and colour; null or empty: none."),
    ] = UNSET


class SetPresenceMode(Body):
    """Mode of presence of a user."""

    mode: ModeField


class PresenceModeShown(Struct):
    """User with the mode of presence that the app has chosen."""

    user: Annotated[str, about("Id of the user.")]
    mode: ModeField


class OnlinePage(Struct, frozen=True):
    """Query of a page of the users online."""

    after: Annotated[
        Annotated[str, Meta(pattern=rf"{ID_PATTERN}|^{CURSOR}\Z", max_length=134)] | None,
        about("Field next of the previous page, or the id of a user; without it, the first page."),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=1_000), about("Maximum number of users in the page.")] = 100


class OnlineUsers(Struct):
    """Page of the users online, and the number of all users online."""

    users: Annotated[list[str], about("Ids of the users, in ascending order within the page.")]
    next: Annotated[str | None, about("Value of `after` for the next page; null: this page is the last one.")]
    count: Annotated[int, about("Number of all users online. It may be 30 s old.")]
    stale: Annotated[
        bool | UnsetType, about("True: users may be missing, because lost records are being restored.")
    ] = UNSET


class PresenceRoutes:
    """Routes of `/v1/presence` and `/v1/users`."""

    def __init__(
        self,
        keys: ApiKeys,
        engine: Engine,
        store: ProfileStore,
        clock: Clock,
        rate_limits: RateLimits,
        slices: TimeSlices,
        snapshots: PresenceSnapshots,
        statuses: StatusService,
        sessions_of: Callable[[str, str], Awaitable[SessionsReply]],
    ) -> None:
        self._keys = keys
        self._engine = engine
        self._store = store
        self._clock = clock
        self._rate_limits = rate_limits
        self._slices = slices
        self._snapshots = snapshots
        self._statuses = statuses
        self._sessions_of = sessions_of
        self._work: dict[tuple[str, bool], int] = {}  # of the last `online` page, by tenant and whether a first page

    @operation("POST /v1/presence/query", answers={200: (PresenceReply,)})
    async def query(self, request: Request, body: QueryPresence) -> Response:
        """Return the presence of up to 10,000 users, as other users see them."""
        tenant = self._keys.tenant(request)
        self._rate_limits.app_query(tenant, len(body.users))
        entries: list[bytes] = []
        order = self._snapshots.order(tenant, body.users)
        async for users in self._slices.cut(ordered(body.users, order)):
            snapshots = await self._snapshots.read(tenant, users)
            entries += [encode_part(project(u, s)) for u, s in zip(users, snapshots, strict=True)]
        return json(joined("presence", restored_order(entries, order)))

    @operation("GET /v1/presence/online", fails=(429,))
    async def online(self, request: Request, query: OnlinePage) -> OnlineUsers:
        """List the users online, one page at a time.

        Users are in the order of their ids within a page. In a large tenant the pages themselves are in no order.
        """
        tenant, rate_limits, engine = self._keys.tenant(request), self._rate_limits, self._engine
        # The work is known only afterwards: charge the work of the last such page now, and the rest then.
        kind = tenant, query.after is None
        expected = self._work.get(kind, query.limit)
        rate_limits.app_query(tenant, expected)
        stale = await engine.is_any_restoring()
        page = await engine.online(tenant, query.after, query.limit)
        stale = stale or await engine.is_any_restoring()
        rate_limits.charge_app_read(tenant, max(0, page.work - expected))
        if len(self._work) > MOST_TENANTS:
            self._work.clear()
        self._work[kind] = page.work
        return OnlineUsers(page.users, page.next, page.total, stale or UNSET)

    @operation("GET /v1/users/{user}/presence")
    async def one(self, request: Request, user: str) -> Presence:
        """Return the presence of a user, as other users see it."""
        (snapshot,) = await self._snapshots.read(self._keys.tenant(request), [user])
        return project(user, snapshot)

    @operation("GET /v1/users/{user}/sessions")
    async def sessions(self, request: Request, user: str) -> SessionsReply:
        """List the sessions of a user on all nodes, whichever node answers."""
        return await self._sessions_of(self._keys.tenant(request), user)

    @operation("PUT /v1/users/{user}/status")
    async def set_status(self, request: Request, user: str, body: SetStatus) -> StatusReply:
        """Set the status and the status text of a user."""
        key, manual = (self._keys.tenant(request), user), ManualStatus(body.status, body.until, body.text)
        snapshot = await self._snapshots.with_profile(key, await self._statuses.set(key, manual))
        return StatusReply(project(user, snapshot, own=True))

    @operation("GET /v1/users/{user}/info")
    async def info(self, request: Request, user: str) -> UserProfile:
        """Return the name and the info that are stored for a user."""
        key = self._keys.tenant(request), user
        return _shown((await self._store.profiles([key])).get(key, NO_PROFILE))

    @operation("PUT /v1/users/{user}/info")
    async def set_info(self, request: Request, user: str, body: PutInfo) -> UserProfile:
        """Set the name or the info of a user, or both. A field that is left out stays as it is; null removes it."""
        if body.name is UNSET and body.info is UNSET:
            return await self.info(request, user)
        try:
            info = UNSET if isinstance(body.info, UnsetType) else encoded_info(body.info or {})
        except ValueError as error:
            raise Problem(400, f"field `info` {error}", code="bad_field") from None
        return await self._put_info(request, user, UNSET if body.name is UNSET else body.name or None, info)

    @operation("DELETE /v1/users/{user}/info")
    async def remove_info(self, request: Request, user: str) -> None:
        """Remove the name and the info of a user. Tokens that were issued before do not set them again."""
        await self._put_info(request, user, None, b"")

    async def _put_info(
        self, request: Request, user: str, name: str | UnsetType | None, info: bytes | UnsetType
    ) -> UserProfile:
        now = self._clock.now_ms()
        change = ProfileChange(at=now, now=now, name=name, info=info)
        kept = await self._snapshots.profiles.set((self._keys.tenant(request), user), change)
        return _shown(kept or NO_PROFILE)


def _shown(profile: Profile) -> UserProfile:
    return UserProfile(profile.name, profile.wire)


class PresenceModeRoutes:
    """Routes of `/v1/users/{user}/presence/mode`."""

    def __init__(self, keys: ApiKeys, presence_modes: PresenceModes) -> None:
        self._keys = keys
        self._presence_modes = presence_modes

    @operation("GET /v1/users/{user}/presence/mode")
    async def get(self, request: Request, user: str) -> PresenceModeShown:
        """Return the mode of presence of a user; `auto` if the app has chosen none."""
        return PresenceModeShown(user, await self._presence_modes.get((self._keys.tenant(request), user)))

    @operation("PUT /v1/users/{user}/presence/mode")
    async def put(self, request: Request, user: str, body: SetPresenceMode) -> PresenceModeShown:
        """Set the mode of presence of a user. The mode is in force on every node when the request is answered.

        A 503 means that a node has not confirmed the mode; send the request again.
        """
        await self._presence_modes.set((self._keys.tenant(request), user), body.mode)
        return PresenceModeShown(user, body.mode)

    @operation("DELETE /v1/users/{user}/presence/mode")
    async def remove(self, request: Request, user: str) -> None:
        """Set the mode of presence of a user to `auto`. A 503 means the same as for PUT."""
        await self._presence_modes.set((self._keys.tenant(request), user), "auto")
