"""HTTP routes of notifications and inboxes."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Raw, Struct
from starlette.requests import Request
from starlette.responses import Response

from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.http.request import Span, check_size, decode, json, read_text
from greendot.http.schema import having, never
from greendot.ids import valid_id
from greendot.inbox.service import InboxService
from greendot.limits.publisher_backpressure import Backpressure
from greendot.limits.rate_limits import RateLimits
from greendot.node.time_slices import TimeSlices
from greendot.protocol.codec import encode_part, joined
from greendot.protocol.commands import Id, Seq
from greendot.push.policy_model import Importance
from greendot.store.inbox import Created, Filter, Notice, Notification
from greendot.store.port import Store
from greendot.store.wire import fit

MOST = 10_000  # notifications in one request
MOST_BYTES = 16 * 1024 * 1024  # in one request


class PostNotification(Struct):
    """One notification; `expires_at` or `ttl_s` or neither."""

    RULE: ClassVar = never(having("expires_at", "ttl_s"))

    user: Id
    kind: Id
    body: Raw
    key: Id | None = None
    expires_at: Seq | None = None
    ttl_s: Annotated[float, Meta(gt=0, le=36_500 * 86_400)] | None = None
    importance: Importance = "normal"
    room: Id | None = None  # room of the message that the notification is about; occupants see the message there
    collapse: Id | None = None  # on a device, the push replaces the previous one with the same value
    push: bool = True  # False: inbox only


class PostNotifications(Struct):
    """Many at once."""

    notifications: Annotated[list[PostNotification], Meta(min_length=1, max_length=MOST)]


class _Opened(Struct):
    """The body of POST /v1/notifications at first sight: many, not yet looked at, or (without `notifications`) one."""

    notifications: Annotated[list[Raw], Meta(min_length=1, max_length=MOST)] | None = None


class NotificationMade(Struct, gc=False):
    """What became of one. Without number and id: its kind is not kept."""

    id: str | None
    seq: int | None
    new: bool


class NotificationsMade(Struct):
    """What became of many, in order."""

    notifications: list[NotificationMade]


class NotificationShown(Struct, gc=False):
    """One notification and what is known of its delivery."""

    seq: int
    id: str
    kind: str
    body: Raw
    created_at: int
    expires_at: int | None
    live_at: int | None
    push_at: int | None
    seen_at: int | None
    read_at: int | None
    archived_at: int | None
    acked_at: int | None
    ack: bool


class InboxSpan(Span, frozen=True):
    """The query of an inbox."""

    filter: Filter = "all"  # "all" leaves out archived notifications


class InboxShown(Struct):
    """A page of an inbox in ascending order, and where the inbox stands."""

    notifications: list[NotificationShown]
    head: int
    unread: int
    unseen: int


class NotificationRoutes:
    """Routes of `/v1/notifications` and inboxes."""

    def __init__(
        self,
        keys: ApiKeys,
        store: Store,
        clock: Clock,
        rate_limits: RateLimits,
        slices: TimeSlices,
        backpressure: Backpressure,
        inbox_service: InboxService,
    ) -> None:
        self._keys = keys
        self._store = store
        self._clock = clock
        self._rate_limits = rate_limits
        self._slices = slices
        self._backpressure = backpressure
        self._inbox_service = inbox_service

    @operation(
        "POST /v1/notifications",
        body=(PostNotification, PostNotifications),
        answers={201: (NotificationMade, NotificationsMade), 200: (NotificationMade, NotificationsMade)},
        fails=(429,),
    )
    async def create(self, request: Request, idempotency_key: str | None) -> Response:
        """Notify a user, or many: written whole or not at all. 200 if nothing was new."""
        tenant, key = self._keys.tenant(request), idempotency_key
        text = await read_text(request, MOST_BYTES)
        await self._slices.turn()
        many = decode(text, _Opened).notifications
        if many is None:
            notice = self._notice(tenant, decode(text, PostNotification), key, "")
            await self._backpressure.check_users(tenant, [notice.user])
            self._rate_limits.app_notifications(tenant, 1)
            (made,) = await self._inbox_service.notify([notice])
            return json(_made(made), 201 if made is None or made.new else 200)
        # Check the limit before decoding the notifications: a refusal must be cheap.
        self._rate_limits.app_notifications(tenant, len(many))
        notices: list[Notice] = []
        async for some in self._slices.cut(many):
            for raw in some:
                within = f"notifications[{len(notices)}]"
                own = None if key is None else f"{key}.{len(notices)}"
                notices.append(self._notice(tenant, decode(raw, PostNotification, within), own, f"{within}."))
        await self._backpressure.check_users(tenant, [notice.user for notice in notices])
        all_made = await self._inbox_service.notify(notices)
        entries: list[bytes] = []
        async for created in self._slices.cut(all_made):
            entries += [encode_part(_made(one)) for one in created]
        is_new = any(made is None or made.new for made in all_made)
        return json(joined("notifications", entries), 201 if is_new else 200)

    def _notice(self, tenant: str, given: PostNotification, key: str | None, within: str) -> Notice:
        now = self._clock.now_ms()
        check_size(given.body)
        if given.expires_at is not None and given.ttl_s is not None:
            raise Problem(400, f"give at most one of `{within}expires_at` and `{within}ttl_s`", code="bad_field")
        if given.expires_at is not None and given.expires_at <= now:
            raise Problem(
                400, f"`{within}expires_at` is in the past; give a later time in milliseconds UTC", code="bad_field"
            )
        if given.key is None and key is not None and not valid_id(key):
            raise Problem(
                400,
                "Idempotency-Key is too long for a list of notifications; use at most 122 characters",
                code="bad_field",
            )
        expires_at = given.expires_at if given.ttl_s is None else now + round(given.ttl_s * 1000)
        return Notice(
            tenant,
            given.user,
            given.kind,
            bytes(given.body),
            given.key or key or "",
            now,
            expires_at,
            push=given.push,
            importance=given.importance,
            room=given.room,
            collapse=given.collapse,
        )

    @operation("GET /v1/users/{user}/inbox")
    async def inbox(self, request: Request, user: str, query: InboxSpan) -> InboxShown:
        """A user's notifications, and what became of each."""
        tenant, after = self._keys.tenant(request), query.after
        found, inbox = await self._store.inbox_page(
            tenant, user, after=after, before=query.before, limit=query.limit, only=query.filter
        )
        return InboxShown([_shown(one) for one in fit(found, newest=after is None)], *inbox)


def _made(created: Created | None) -> NotificationMade:
    if created is None:
        return NotificationMade(None, None, True)
    return NotificationMade(created.notification.id, created.notification.seq, created.new)


def _shown(of: Notification) -> NotificationShown:
    return NotificationShown(
        seq=of.seq,
        id=of.id,
        kind=of.kind,
        body=Raw(of.body),
        created_at=of.created_at,
        expires_at=of.expires_at,
        live_at=of.live_at,
        push_at=of.push_at,
        seen_at=of.seen_at,
        read_at=of.read_at,
        archived_at=of.archived_at,
        acked_at=of.acked_at,
        ack=of.ack,
    )
