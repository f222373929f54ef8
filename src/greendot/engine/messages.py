"""Messages of the bus, their topics, and the parts of the data that an engine can lose."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct, field

from greendot.auth.model import Revocation
from greendot.presence.model import Change


class NodeMessage(Struct, frozen=True, array_like=True, tag=True):
    """What nodes say to each other, as opposed to what the engine tells by itself."""


class ClusterQuestion(NodeMessage, frozen=True, tag="q"):
    """Somebody looks at the whole cluster: the topic's node says how it is there."""

    question: bytes
    asker: str  # the node to answer
    number: int


class ClusterAnswer(NodeMessage, frozen=True, tag="p"):
    """What a node answers to the topic's node."""

    number: int
    node: str
    answer: bytes


class Part:
    """A part of the users and rooms, by where they are kept."""

    def covers(self, tenant: str, name: str) -> bool:
        """Whether this user or room is in it. All are, unless a subclass says otherwise."""
        return True

    def within(self, other: Part) -> bool:
        """Whether all of it is covered by another part. Unsure is no."""
        return type(other) is Part

    def away(self) -> Part | None:
        """What of it cannot be reached at the moment."""
        return None


TopicKind = Literal["room", "watch", "user", "node"]


class Topic(NamedTuple):
    """Where a message goes: a room's listeners, a user's watchers, a user's own devices, or one node."""

    kind: TopicKind
    tenant: str  # empty for a node
    name: str


class Deliver(NodeMessage, frozen=True, tag="d"):
    """A finished client frame on its way to the listeners of a topic."""

    frame: bytes  # empty for a record whose content is in the store only (a hint)
    seq: int | None = None  # a record's number: it must arrive, in order. None: a signal, may be merged or dropped
    key: object = None  # signals with the same key replace each other while they wait
    without_connection: str | None = None  # the id of the connection that sent it, which names its node
    members_rev: int = 0  # of a room's record: who may hear it
    # In the course of what it is said. The last field: nodes of the version before read the others and leave it.
    traceparent: str | None = None


class Notified(NodeMessage, frozen=True, tag="n"):
    """New notifications in the inbox of the topic's user, in order: they must arrive, in order."""

    # Number, finished client frame (empty: the content is in the store only), whether it is to be acknowledged.
    records: list[tuple[int, bytes, bool]]
    traceparent: str | None = None  # as in Deliver


class InboxChanged(NodeMessage, frozen=True, tag="i"):
    """The inbox of the topic's user counts otherwise than before."""

    frame: bytes = b""  # for the user's devices, if they are to know what changed
    without_connection: str | None = None  # the one that changed it
    acked: list[int] = field(default_factory=list)  # numbers that were acknowledged
    acked_through: int = 0  # the same, all up to and including this one


class MembersChanged(NodeMessage, frozen=True, tag="m"):
    """Others may be in the topic's room than before: look it up again."""


class MemberRemoved(NodeMessage, frozen=True, tag="r"):
    """A user may no longer be in a room. The topic's node lets go of the user's connections and says so."""

    tenant: str
    room: str
    user: str
    reason: str
    asker: str  # the node that waits
    number: int


class Acknowledged(NodeMessage, frozen=True, tag="k"):
    """A node has done what the topic's node asked for under this number."""

    number: int
    node: str
    count: int = 0  # of what was done


class Revoked(NodeMessage, frozen=True, tag="v"):
    """Something was revoked: the topic's node closes what it covers, and says so if it is asked to."""

    revocation: Revocation
    asker: str = ""  # the node that waits; empty: none does
    number: int = 0


class Disconnect(NodeMessage, frozen=True, tag="x"):
    """Close one session of the topic's node."""

    session: str
    code: Annotated[int, Meta(ge=4000, le=4999)]
    reason: Annotated[str, Meta(max_length=30)]  # a close frame has room for 123 bytes
    tenant: str | None = None  # only if it is this tenant's


class Audit(NodeMessage, frozen=True, tag="a"):
    """Compare the sessions the engine has of the topic's node with those it holds."""


class HoldSession(NodeMessage, frozen=True, tag="w"):
    """A user who came back to a session of the topic's node was sent away by another, and told to wait so long."""

    session: str
    tenant: str
    user: str
    wait_ms: int


class StatusChanged(NodeMessage, frozen=True, tag="s"):
    """The topic's user set a status: look it up."""


class VisibilityChanged(NodeMessage, frozen=True, tag="g"):
    """Others may see a user than before, or the user others. The topic's node acts on it and says so."""

    tenant: str
    user: str
    asker: str  # the node that waits
    number: int


class Typing(Struct, frozen=True):
    """A user started (or went on) typing in the topic's room, or stopped. Told by the engine itself."""

    user: str
    name: str | None
    expires_in_ms: int  # 0: stopped


class Entered(Struct, frozen=True):
    """A user's first session that counts is in the topic's room. Told by the engine itself."""

    user: str
    restored: bool = False  # after a loss; others may be in the room whose sessions are still to be restored


class Left(Struct, frozen=True):
    """A user's last session left the topic's room. Told by the engine itself, unless the session's node died."""

    user: str


AnySent = (
    Deliver
    | Notified
    | InboxChanged
    | MembersChanged
    | MemberRemoved
    | Acknowledged
    | Revoked
    | Disconnect
    | Audit
    | HoldSession
    | StatusChanged
    | VisibilityChanged
    | ClusterQuestion
    | ClusterAnswer
)
Message = AnySent | Typing | Entered | Left | Change
