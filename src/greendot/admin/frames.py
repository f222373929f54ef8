"""Frames between the dashboard's page and its node, on a socket of their own.

The first frame is `hello` with a key. All others may carry an `id`, and are answered by a `reply` or an `error` with
this id, as on the clients' wire. By itself the node sends `welcome`, a `sample` every second, and `tail` if requested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from greendot.engine.results import CURSOR
from greendot.ids import ID_PATTERN
from greendot.node.event_recorder_model import EventKind
from greendot.protocol.cluster import TopicKind
from greendot.protocol.commands import CommandId
from greendot.protocol.decoding import Json, decoder

Id = Annotated[str, Meta(pattern=ID_PATTERN)]
Prefix = Annotated[str, Meta(max_length=128)]
Cursor = Annotated[str, Meta(pattern=rf"{ID_PATTERN}|^{CURSOR}\Z")]
Moderation = Literal["mute", "unmute", "ban", "unban", "archive", "unarchive", "delete"]
Action = Literal["disconnect", "revoke", "notify"] | Moderation
ReturnCode = Literal[4000, 4503]


class Command(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all commands."""

    id: CommandId | None = None  # repeated in the answer


class Hello(Command, frozen=True, tag="hello"):
    """First frame, with the viewer's key."""

    key: Annotated[str, Meta(min_length=1, max_length=512)]


class SetTail(Command, frozen=True, tag="tail"):
    """Choice of events for the tail; no kinds end it. Nodes filter the events before they send them."""

    kinds: Annotated[list[EventKind], Meta(max_length=8)]
    tenant: Id | None = None
    user: Id | None = None
    room: Id | None = None
    node: Id | None = None


class SetTop(Command, frozen=True, tag="top"):
    """Number of hot topics and slow clients in each sample; 0 ends them."""

    most: Annotated[int, Meta(ge=0, le=50)]


class FindUser(Command, frozen=True, tag="find.user"):
    """Request for everything about a user."""

    user: Id
    tenant: Id | None = None  # optional if the viewer sees one tenant only


class FindRoom(Command, frozen=True, tag="find.room"):
    """Request for everything about a room."""

    room: Id
    tenant: Id | None = None


class FindNode(Command, frozen=True, tag="find.node"):
    """Request for everything about a node."""

    node: Id


class FindTopic(Command, frozen=True, tag="find.topic"):
    """Request for the listeners of a topic and the frames that wait for them."""

    kind: TopicKind
    name: Id
    tenant: Id | None = None


class ReadHistory(Command, frozen=True, tag="history"):
    """Request for the figures of all nodes in the last hour."""


class ListUsers(Command, frozen=True, tag="list.users"):
    """Request for a page of the users online whose ids begin with a text."""

    tenant: Id | None = None
    prefix: Prefix = ""
    after: Cursor | None = None  # `next` of the page before


class ListRooms(Command, frozen=True, tag="list.rooms"):
    """Request for a page of the rooms whose ids begin with a text."""

    tenant: Id | None = None
    prefix: Prefix = ""
    after: Id | None = None  # `next` of the page before


class ListAudit(Command, frozen=True, tag="list.audit"):
    """Request for a page of the audit, newest first, about all rooms or one."""

    tenant: Id | None = None
    room: Id | None = None
    after: int | None = None  # `next` of the page before


class Act(Command, frozen=True, tag="act"):
    """Request for an action. It is described in a sentence, and done after a confirmation."""

    do: Action
    tenant: Id | None = None
    user: Id | None = None
    session: Id | None = None
    room: Id | None = None  # for moderation; with a user: in this room only
    node: Id | None = None  # all its connections, for a disconnect
    code: ReturnCode = 4503  # close code of a disconnect: 4503 to stay away, 4000 to come back
    reason: Annotated[str, Meta(max_length=30)] = "disconnected by the operator"
    text: Annotated[str, Meta(max_length=200)] = ""  # text of a notification


class Confirm(Command, frozen=True, tag="confirm"):
    """Confirmation of the offered action."""

    number: int


AnyCommand = (
    Hello
    | SetTail
    | SetTop
    | FindUser
    | FindRoom
    | FindNode
    | FindTopic
    | ReadHistory
    | ListUsers
    | ListRooms
    | ListAudit
    | Act
    | Confirm
)

decode: Callable[[Json], AnyCommand] = decoder(AnyCommand)  # type: ignore[arg-type]  # a union
_encode = msgspec.json.Encoder().encode


def event(kind: str, data: Any, ts: int) -> bytes:
    return _encode({"type": kind, "ts": ts, "data": data})


def reply(command_id: CommandId | None, data: Any) -> bytes:
    return _encode({"type": "reply", "id": command_id, "data": data})


def error(command_id: CommandId | None, code: str, message: str) -> bytes:
    return _encode({"type": "error", "id": command_id, "code": code, "message": message})
