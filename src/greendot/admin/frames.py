"""What the dashboard's page and its node say to each other, on a socket of its own.

The first frame is `hello` with a key. Everything else may carry an `id`, and is answered by a `reply` or an `error`
with it, as on the clients' wire. By itself the node sends `welcome`, a `sample` every second, and `tail` where wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from greendot.ids import ID_PATTERN
from greendot.node.event_recorder_model import EventKind
from greendot.protocol.cluster import TopicKind
from greendot.protocol.commands import CommandId
from greendot.protocol.decoding import Json, decoder

Id = Annotated[str, Meta(pattern=ID_PATTERN)]
Action = Literal["disconnect", "revoke", "notify"]
ReturnCode = Literal[4000, 4503]


class Command(Struct, frozen=True, kw_only=True, tag_field="type"):
    """All of them."""

    id: CommandId | None = None  # to be answered under


class Hello(Command, frozen=True, tag="hello"):
    """The first: who looks."""

    key: Annotated[str, Meta(min_length=1, max_length=512)]


class SetTail(Command, frozen=True, tag="tail"):
    """Which events are wanted; none ends it. Who wants some only has them sorted out where they happen."""

    kinds: Annotated[list[EventKind], Meta(max_length=8)]
    tenant: Id | None = None
    user: Id | None = None
    room: Id | None = None
    node: Id | None = None


class SetTop(Command, frozen=True, tag="top"):
    """How many hot topics and slow clients are to be in each sample; 0 ends it."""

    most: Annotated[int, Meta(ge=0, le=50)]


class FindUser(Command, frozen=True, tag="find.user"):
    """All there is of a user."""

    user: Id
    tenant: Id | None = None  # who sees one tenant only need not say which


class FindRoom(Command, frozen=True, tag="find.room"):
    """All there is of a room."""

    room: Id
    tenant: Id | None = None


class FindNode(Command, frozen=True, tag="find.node"):
    """All there is of a node."""

    node: Id


class FindTopic(Command, frozen=True, tag="find.topic"):
    """Who listens to a topic, and what waits for them."""

    kind: TopicKind
    name: Id
    tenant: Id | None = None


class Act(Command, frozen=True, tag="act"):
    """What would be done. It is told in a sentence, and done if that is confirmed."""

    do: Action
    tenant: Id | None = None
    user: Id | None = None
    session: Id | None = None
    node: Id | None = None  # all that is connected to it: to disconnect them
    code: ReturnCode = 4503  # the close code of a disconnect: 4503 to stay away, 4000 to come back
    reason: Annotated[str, Meta(max_length=30)] = "disconnected by the operator"
    text: Annotated[str, Meta(max_length=200)] = ""  # of a notification


class Confirm(Command, frozen=True, tag="confirm"):
    """Do it."""

    number: int


AnyCommand = Hello | SetTail | SetTop | FindUser | FindRoom | FindNode | FindTopic | Act | Confirm

decode: Callable[[Json], AnyCommand] = decoder(AnyCommand)  # type: ignore[arg-type]  # a union
_encode = msgspec.json.Encoder().encode


def event(kind: str, data: Any, ts: int) -> bytes:
    return _encode({"type": kind, "ts": ts, "data": data})


def reply(command_id: CommandId | None, data: Any) -> bytes:
    return _encode({"type": "reply", "id": command_id, "data": data})


def error(command_id: CommandId | None, code: str, message: str) -> bytes:
    return _encode({"type": "error", "id": command_id, "code": code, "message": message})
