"""Connection of a Centrifuge client: its subscriptions, and the close codes it gets."""

from __future__ import annotations

from msgspec import structs

from greendot.compat.centrifuge.channel_model import Rules
from greendot.compat.centrifuge.codes_model import CfClose, close_of
from greendot.compat.connection import ForeignConnection, NodeServices
from greendot.node.session import ForeignProtocol, Session
from greendot.node.timer_model import Timer
from greendot.protocol.codes import Close
from greendot.protocol.versions import Dialect

BINARY = "\0"  # beginning of a message that is a binary frame; no JSON begins so


class Subscription:
    """Subscription of a connection to a channel, as long as the connection is in the channel's room."""

    __slots__ = ("channel", "is_claimed", "room", "rules", "timer", "token_id")

    def __init__(self, channel: str, room: str, rules: Rules) -> None:
        self.channel = channel
        self.room = room
        self.rules = rules
        self.timer: Timer | None = None  # set if the subscription expires
        self.token_id: str | None = None  # `jti` of the subscription token
        self.is_claimed = False  # the connection token names the channel


class CentrifugeConnection(ForeignConnection):
    """Connection of a Centrifuge client."""

    __slots__ = ("alarm", "granted_rooms", "is_binary", "is_connecting", "is_stale", "joining", "subscriptions")

    def __init__(self, services: NodeServices, foreign: ForeignProtocol, dialect: Dialect, number: str) -> None:
        super().__init__(services, foreign, dialect, number)
        self.is_connecting = False  # a `connect` is under way
        self.alarm: Timer | None = None  # until `connect`, then for pings and their answers
        self.is_binary = False  # the client asks for Protobuf
        self.is_stale = False  # no `connect` came in time
        self.granted_rooms: tuple[str, ...] = ()  # rooms that subscription tokens and channel names grant
        self.joining: set[str] = set()  # rooms whose join is under way
        self.subscriptions: dict[str, Subscription] = {}  # by channel

    def on_binary(self, payload: bytes) -> None:
        """Pass a frame in Protobuf on as text, one character for a byte. `json_of` decodes it, behind the limits."""
        if self.is_binary:
            self.on_text(BINARY + payload.decode("latin-1"))
        else:
            super().on_binary(payload)

    def json_of(self, message: str) -> str:
        """Return a message as JSON of commands. Raise BadCommand if it is not valid Protobuf."""
        if not self.is_binary or not message.startswith(BINARY):
            return message
        from greendot.compat.centrifuge.protobuf import as_json  # its library is optional

        return as_json(message[len(BINARY) :].encode("latin-1"))

    def grant(self, session: Session, room: str) -> None:
        """Grant the session a room, in addition to the rooms that its token grants."""
        if room not in self.granted_rooms:
            self.granted_rooms = (*self.granted_rooms, room)
            session.grants = structs.replace(session.grants, rooms=(*session.grants.rooms, room))

    def take_back(self, session: Session, room: str) -> None:
        """End a grant of `grant`. The session stays in the room until it leaves."""
        if room not in self.granted_rooms:
            return
        self.granted_rooms = tuple(one for one in self.granted_rooms if one != room)
        rooms = [*session.grants.rooms]
        if room in rooms:
            del rooms[
                len(rooms) - 1 - rooms[::-1].index(room)
            ]  # the last one: the token itself may grant the room, too
            session.grants = structs.replace(session.grants, rooms=tuple(rooms))

    def missed_messages(self) -> None:
        """Close the connection: its client returns, and recovers by the positions that it knows."""
        self.close(Close.RESYNC, "publications were missed")

    def wire_code(self, code: int) -> int:
        if self.is_stale:
            return int(CfClose.STALE)
        return close_of(code, "", is_greeted=self.session is not None)[0]

    def close(self, code: int, reason: str = "", last: bytes | None = None) -> None:
        super().close(code, close_of(code, reason, is_greeted=self.session is not None)[1], last)
