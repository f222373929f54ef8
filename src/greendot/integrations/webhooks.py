"""Webhooks as a backend receives them: verified, with typed data. All integrations use this module."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from greendot.errors import BadWebhook
from greendot.protocol import webhooks as wire
from greendot.protocol.decoding import decode
from greendot.sdk.responses import Message

D = TypeVar("D")

MOST_BYTES = 2 * 1024 * 1024  # of a body; the server sends about 1 MiB at most
DELIVERY_S = 2 * wire.TOLERANCE_S  # a signature is accepted from TOLERANCE_S before its time until TOLERANCE_S after it
EVENT_S = 24 * 60 * 60  # the server repeats an event for a day
TOO_LARGE = f"the body has more than {MOST_BYTES} bytes"
REPLAYED = "this delivery was received before"


class UserChange(wire.OfUser, frozen=True):
    """Data of `user.online` and `user.offline`: `user`."""


class RoomChange(wire.OfRoom, frozen=True):
    """Data of `room.occupied` and `room.vacated`: `room`."""


class NotificationCreated(wire.CreatedFor, frozen=True):
    """Data of `notification.created`. The body is decoded."""

    body: Any


class NotificationUpdated(wire.UpdatedFor, frozen=True):
    """Data of `notification.updated`: `user`, `state`, `ids`."""


class AuditCreated(wire.Audited, frozen=True):
    """Data of `audit.created`: a change by moderation."""


DATA: dict[str, type[Struct]] = {
    "user.online": UserChange,
    "user.offline": UserChange,
    "room.occupied": RoomChange,
    "room.vacated": RoomChange,
    "room.message": Message,
    "notification.created": NotificationCreated,
    "notification.updated": NotificationUpdated,
    "audit.created": AuditCreated,
}


class Event(Struct, Generic[D], frozen=True):
    """Event of a webhook. A repeated event has the same `id`. `at` is in milliseconds since 1970."""

    id: str
    type: str
    tenant: str
    at: int
    data: D


def typed_event(event: wire.HookEvent) -> Event[Any]:
    """Return the event with decoded data: an object of the type in DATA, or plain JSON for other types."""
    kind = DATA.get(event.type)
    try:
        data = decode(event.data, object if kind is None else kind)
    except msgspec.ValidationError:  # from a newer server
        data = decode(event.data, object)
    return Event(event.id, event.type, event.tenant, event.at, data)


def verified(body: bytes, header: str, secrets: Sequence[str]) -> wire.HookDelivery:
    """Return the delivery if one of the secrets signed it recently. Else raise BadWebhook."""
    secret = next((each for each in secrets if _signed(body, header, each)), secrets[0])
    try:
        return wire.read_delivery(body, header, secret, time.time())
    except wire.BadSignature as error:
        raise BadWebhook(str(error)) from None


def _signed(body: bytes, header: str, secret: str) -> bool:
    """Return whether the secret signed the body, at any time."""
    try:
        wire.check_signature(body, header, secret, 0.0, math.inf)
    except wire.BadSignature:
        return False
    return True


class ReplayStore(Protocol):
    """Ids of deliveries and events that all processes of an app share, such as keys in Redis.

    Methods are called in threads, several at once. An exception is answered with 500, so Greendot sends the events
    again.
    """

    def add(self, id_: str, seconds: float, /) -> bool:
        """Remember an id for a number of seconds, in one step. Return whether it is new."""
        ...

    def __contains__(self, id_: str, /) -> bool:
        """Return whether the id is remembered."""
        ...


class SeenIds:
    """Ids in the memory of one process, each for a number of seconds. The oldest are forgotten beyond `most`."""

    def __init__(self, most: int = 100_000, now: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._now = now
        self._until: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, id_: str) -> bool:
        return self._until.get(id_, 0.0) > self._now()

    def add(self, id_: str, seconds: float) -> bool:
        """Remember an id. Return whether it is new."""
        new = id_ not in self
        self._until.pop(id_, None)
        self._until[id_] = self._now() + seconds
        if len(self._until) > self._most:
            self._until.popitem(last=False)
        return new
