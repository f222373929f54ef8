"""HTTP routes of notifications and inboxes."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, defstruct, structs
from starlette.requests import Request
from starlette.responses import Response

from greendot.auth.api_keys import ApiKeys
from greendot.clock import Clock
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.http.request import Body, Span, check_size, decode, json, read_text
from greendot.http.schema import having, never
from greendot.ids import valid_id
from greendot.inbox.service import InboxService
from greendot.limits.publisher_backpressure import Backpressure
from greendot.limits.rate_limits import RateLimits
from greendot.node.time_slices import TimeSlices
from greendot.protocol.codec import encode_part, joined
from greendot.protocol.commands import Id, Seq
from greendot.protocol.fields import (
    AckedAtField,
    AckField,
    ArchivedAtField,
    CreatedAtField,
    InboxHeadField,
    KindField,
    NotificationIdField,
    NotificationSeqField,
    ReadAtField,
    SeenAtField,
    UnreadField,
    UnseenField,
    about,
)
from greendot.push.policy_model import Importance
from greendot.store.inbox import Created, Filter, Notice, Notification
from greendot.store.port import Store
from greendot.store.wire import fit

MOST = 10_000  # notifications in one request
MOST_BYTES = 16 * 1024 * 1024  # bytes of one request


class PostNotification(Body):
    """Notification to create, with at most one of `expires_at` and `ttl_s`."""

    RULE: ClassVar = never(having("expires_at", "ttl_s"))

    user: Annotated[Id, about("Id of the user who gets the notification.")]
    kind: Annotated[Id, about("Kind of the notification, chosen by the app. The settings decide how kinds are kept.")]
    body: Annotated[Raw, about("Content of the notification: any JSON value.")]
    key: Annotated[
        Id | None,
        about(
            "Idempotency key. If the user already has a notification with this key, nothing is written; "
            "the answer describes that notification."
        ),
    ] = None
    expires_at: Annotated[
        Seq | None, about("Time when the notification expires, in milliseconds UTC and in the future.")
    ] = None
    ttl_s: Annotated[
        Annotated[float, Meta(gt=0, le=36_500 * 86_400)] | None,
        about("Time until the notification expires, in seconds."),
    ] = None
    importance: Annotated[Importance, about("Importance of the push.")] = "normal"
    room: Annotated[
        Id | None,
        about(
            "Room of the message that the notification is about. The push waits while the user is active in the room."
        ),
    ] = None
    collapse: Annotated[Id | None, about("On a device, the push replaces the previous push with the same value.")] = (
        None
    )
    push: Annotated[bool, about("Whether the notification may be pushed; false: inbox only.")] = True


class PostNotifications(Body):
    """Several notifications to create. All are written, or none."""

    notifications: Annotated[
        list[PostNotification], Meta(min_length=1, max_length=MOST), about("Notifications to create.")
    ]


# Body of POST /v1/notifications, undecoded: one notification, or a list. It has the names of both, and no others.
_OF_ONE = PostNotification.__struct_encode_fields__
_Opened = defstruct(
    "_Opened",
    [
        ("notifications", Annotated[list[Raw], Meta(min_length=1, max_length=MOST)] | UnsetType, UNSET),
        *((name, Raw | UnsetType, UNSET) for name in _OF_ONE),
    ],
    bases=(Body,),
)


class NotificationMade(Struct, gc=False):
    """Result for one notification."""

    id: Annotated[str | None, about("Id of the notification; null if its kind is not kept.")]
    seq: Annotated[int | None, about("Number of the notification in the inbox; null if its kind is not kept.")]
    new: Annotated[bool, about("Whether the notification was created now; false: its key was used before.")]


class NotificationsMade(Struct):
    """Results for several notifications."""

    notifications: Annotated[list[NotificationMade], about("One result per notification, in the order of the request.")]


class NotificationShown(Struct, gc=False):
    """Notification with the times of its delivery and of its marks: seen, read, archived, acknowledged."""

    seq: NotificationSeqField
    id: NotificationIdField
    kind: KindField
    body: Annotated[Raw, about("Content of the notification: any JSON value.")]
    created_at: CreatedAtField
    expires_at: Annotated[
        int | None, about("Time when the notification expires, in milliseconds UTC; null if it does not expire.")
    ]
    live_at: Annotated[
        int | None, about("Time of the first delivery to a connected device, in milliseconds UTC; null if none.")
    ]
    push_at: Annotated[
        int | None, about("Time of the first delivery to a push provider, in milliseconds UTC; null if none.")
    ]
    seen_at: SeenAtField
    read_at: ReadAtField
    archived_at: ArchivedAtField
    acked_at: AckedAtField
    ack: AckField


class InboxSpan(Span, frozen=True):
    """Query of a page of an inbox."""

    filter: Annotated[Filter, about("Notifications to return. The value all excludes archived notifications.")] = "all"


class InboxShown(Struct):
    """Page of an inbox in ascending order, with the inbox's head and counters."""

    notifications: Annotated[list[NotificationShown], about("Notifications in ascending order.")]
    head: InboxHeadField
    unread: UnreadField
    unseen: UnseenField


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
        """Create one notification, or a list of notifications. The answer is 200 if none is new.

        A list is written completely or not at all.
        """
        tenant, key = self._keys.tenant(request), idempotency_key
        text = await read_text(request, MOST_BYTES)
        await self._slices.turn()
        many = _list_in(text)
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
        """Return notifications of a user's inbox with their delivery times and marks, one page at a time."""
        tenant, after = self._keys.tenant(request), query.after
        found, inbox = await self._store.inbox_page(
            tenant, user, after=after, before=query.before, limit=query.limit, only=query.filter
        )
        return InboxShown([_shown(one) for one in fit(found, newest=after is None)], *inbox)


def _list_in(text: str) -> list[Raw] | None:
    """Return the notifications of a list, undecoded; None if the body is one notification."""
    opened = structs.asdict(decode(text, _Opened))
    many: list[Raw] | UnsetType = opened["notifications"]
    if isinstance(many, UnsetType):
        return None
    if beside := [name for name in _OF_ONE if opened[name] is not UNSET]:
        raise Problem(400, f"field `{beside[0]}` is beside the list; give it in each notification", code="bad_field")
    return many


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
