"""Bus messages, their topics, and the parts of the data: sets of users and rooms that an engine can lose together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct, field

from greendot.auth.model import Revocation
from greendot.presence.model import Change


class NodeMessage(Struct, frozen=True, array_like=True, tag=True):
    """Message from node to node, as opposed to a message of the engine itself."""


class ClusterQuestion(NodeMessage, frozen=True, tag="q"):
    """Cluster query: the topic's node answers with a report about itself."""

    question: bytes
    asker: str  # the node that gets the answer
    number: int


class ClusterAnswer(NodeMessage, frozen=True, tag="p"):
    """Answer to the cluster query of the topic's node."""

    number: int
    node: str
    answer: bytes


class SessionsQuestion(NodeMessage, frozen=True, tag="u"):
    """Question which sessions of some users the topic's node has, or has in a room.

    The answer has a byte for each place, see `presence.held_model.Seen`.
    """

    places: list[tuple[str, str, str]]  # tenant, user, room (empty: all sessions of the user)
    asker: str  # the node that gets the answer
    number: int


class StreamPost(NodeMessage, frozen=True, tag="e"):
    """Commands for an event stream of the topic's node, which were sent to another node.

    The answer is a `transport.event_stream.PostOutcome`.
    """

    stream: str
    seq: int  # number of the request
    commands: list[str]
    close: int | None
    asker: str  # the node that gets the answer
    number: int


class Part:
    """Set of users and rooms that the engine keeps in the same place, such as one Redis server."""

    def covers(self, tenant: str, name: str) -> bool:
        """Return whether this user or room is in the part. The base class covers all."""
        return True

    def within(self, other: Part) -> bool:
        """Return whether another part covers all of this part. Return False if unsure."""
        return type(other) is Part

    def away(self) -> Part | None:
        """Return the share of the part that cannot be reached now, or None."""
        return None

    def pieces(self) -> Sequence[Part]:
        """Return the pieces that are restored one after the other. All nodes restore them in the same order."""
        return (self,)


TopicKind = Literal["room", "watch", "user", "node"]


class Topic(NamedTuple):
    """Address of a message: the subscribers of a room, the watchers of a user, the devices of a user, or one node."""

    kind: TopicKind
    tenant: str  # empty for a node
    name: str


ALL_NODES = Topic("node", "", "all")  # for nodes that subscribed; no incarnation has this name


class Deliver(NodeMessage, frozen=True, tag="d"):
    """Encoded client frame for the subscribers of a topic."""

    frame: bytes  # empty for a hint: a record whose content is only in the store
    seq: int | None = None  # number of a record, which must arrive, in order. None: a signal, may be merged or dropped
    # Waiting signals with the same key replace each other. Decoded as a tuple: a list could not be a key of a buffer.
    key: str | tuple[str | None, ...] | None = None
    without_connection: str | None = None  # id of the sending connection, which is skipped; the id names its node
    members_rev: int = 0  # revision of the members who may receive a room's record
    # Add fields at the end and with a default: nodes of the previous version read the fields before and ignore others.
    traceparent: str | None = None  # trace of the cause
    sender: str | None = None  # of a signal: the user who sent it, hidden from some receivers; None: the app


class Notified(NodeMessage, frozen=True, tag="n"):
    """New notifications in the inbox of the topic's user. They must arrive, in order."""

    # Number, encoded client frame (empty: the content is only in the store), whether it must be acknowledged.
    records: list[tuple[int, bytes, bool]]
    traceparent: str | None = None  # as in Deliver


class InboxChanged(NodeMessage, frozen=True, tag="i"):
    """Changed counters, or notifications marked as seen, read, archived or acknowledged, for the topic's user."""

    frame: bytes = b""  # for the user's devices; empty: nothing to send
    without_connection: str | None = None  # id of the connection that caused the change, which is skipped
    acked: list[int] = field(default_factory=list)  # acknowledged numbers
    acked_through: int = 0  # all numbers up to and including this one are acknowledged


class MembersChanged(NodeMessage, frozen=True, tag="m"):
    """Changed members of the topic's room.

    Without `revision`, any member may have changed, or whether the room is open: receivers read all members again.
    """

    revision: int = 0  # revision of the members after the change
    user: str = ""  # the changed member; empty: the members have this revision, and no member has changed now


class Receipt(NodeMessage, frozen=True, tag="rc"):
    """Read receipt of a user, for the listeners of the topic's room who see the user. Each node decides who does."""

    user: str
    seq: int  # number of the last message that the user has read


class MemberRemoved(NodeMessage, frozen=True, tag="r"):
    """Removal of a user from a room. The topic's node detaches the user's connections and acknowledges."""

    tenant: str
    room: str
    user: str
    reason: str
    asker: str  # the node that waits for the acknowledgement
    number: int
    unless_member: bool = False  # the user stays if the store has the user as a member, because of a later addition


class Acknowledged(NodeMessage, frozen=True, tag="k"):
    """Acknowledgement that a node has carried out a request of the topic's node."""

    number: int
    node: str
    count: int = 0  # number of affected items
    is_arrival: bool = False  # only reports that the request has arrived; the acknowledgement follows


class Revoked(NodeMessage, frozen=True, tag="v"):
    """Revocation. The topic's node closes the affected connections and acknowledges if asked to."""

    revocation: Revocation
    asker: str = ""  # the node that waits for the acknowledgement; empty: none
    number: int = 0


class Disconnect(NodeMessage, frozen=True, tag="x"):
    """Request to close one session of the topic's node."""

    session: str
    code: Annotated[int, Meta(ge=4000, le=4999)]
    reason: Annotated[str, Meta(max_length=30)]  # a close frame has room for 123 bytes
    tenant: str | None = None  # close only a session of this tenant; None: of any


class RoomOrder(NodeMessage, frozen=True, tag="j"):
    """Order of the app that clients of a user join or leave a room. Only clients of foreign protocols follow it."""

    tenant: str
    user: str
    room: str
    session: str = ""  # only this session; empty: all sessions of the user
    join: bool = True  # False: leave


class Audit(NodeMessage, frozen=True, tag="a"):
    """Request to compare the sessions that the engine has for the topic's node with the node's own sessions."""


class HoldSession(NodeMessage, frozen=True, tag="w"):
    """Request to keep a session of the topic's node.

    Another node refused the session's client, which returned, and asked the client to wait `wait_ms`.
    """

    session: str
    tenant: str
    user: str
    wait_ms: int


class StatusChanged(NodeMessage, frozen=True, tag="s"):
    """Changed status of the topic's user, which receivers must read again."""


class ProfileChanged(NodeMessage, frozen=True, tag="o"):
    """Changed profile (name and info) of a user, which nodes that show the user must read again."""

    tenant: str
    user: str


class VisibilityChanged(NodeMessage, frozen=True, tag="g"):
    """Change in who may see a user, or whom the user may see. The topic's node applies it and acknowledges."""

    tenant: str
    user: str
    asker: str  # the node that waits for the acknowledgement
    number: int
    reports_arrival: bool = False  # the asker wants to know of the arrival at once, and reports arrivals itself
    # What has changed. Empty: privacy settings, contacts or rooms. Nodes of the previous version take all for that.
    what: str = ""


class LimitReport(NodeMessage, frozen=True, tag="l"):
    """Demand on a node for limits of tenants, for the nodes that share these limits."""

    node: str
    rates: list[tuple[str, str, float]]  # activity, tenant, tokens per second
    # Tenant, its connections on the node, the number that the node may have, whether the node needs more.
    connections: list[tuple[str, int, int, bool]] = field(default_factory=list)


class Typing(Struct, frozen=True):
    """Start, continuation or stop of typing in the topic's room. Published by the engine itself."""

    user: str
    name: str | None
    expires_in_ms: int  # 0: typing stopped


class Entered(Struct, frozen=True):
    """Entry of a user's first session into the topic's room. Published by the engine itself."""

    user: str
    restored: bool = False  # after a loss: other occupants may still be missing
    name: str | None = None  # display name of the token; None also if restored


class Left(Struct, frozen=True):
    """Exit of a user's last session from the topic's room.

    Published by the engine itself, unless the session's node died.
    """

    user: str


AnySent = (
    Deliver
    | Notified
    | InboxChanged
    | MembersChanged
    | Receipt
    | MemberRemoved
    | Acknowledged
    | Revoked
    | Disconnect
    | RoomOrder
    | Audit
    | HoldSession
    | StatusChanged
    | ProfileChanged
    | VisibilityChanged
    | LimitReport
    | ClusterQuestion
    | ClusterAnswer
    | SessionsQuestion
    | StreamPost
)
Message = AnySent | Typing | Entered | Left | Change
