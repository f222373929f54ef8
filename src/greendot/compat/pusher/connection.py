"""Connection of a client that speaks the Pusher protocol."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from greendot.compat.connection import ForeignConnection, NodeServices
from greendot.compat.pusher import frames
from greendot.compat.pusher.apps import PusherApp
from greendot.compat.pusher.channel_model import PERSONAL, ChannelName
from greendot.compat.pusher.dialect import PusherDialect, personal_event, presence_in
from greendot.node.session import ForeignProtocol
from greendot.protocol.codes import Close, invites_return
from greendot.protocol.versions import frame_head, split_frames

# Close codes of the protocol. A client stays away after 4000 to 4099, waits a second after 4100 to 4199, and returns at
# once after 4200 to 4299. It has no other backoff, so a server that cannot serve clients closes with 4100.
NO_APP, BAD_VERSION, NO_PROTOCOL_7, NO_PROTOCOL, UNAUTHORIZED = 4001, 4006, 4007, 4008, 4009
LATER, RETURN, NO_PONG = 4100, 4200, 4201
RATE_LIMITED, LONG_WATCHLIST = 4301, 4302  # of errors: a connection is never closed with them
_CODES: dict[int, int] = {
    Close.DRAINING: LATER,
    Close.TOO_SLOW: LATER,
    Close.HEARTBEAT_LOST: NO_PONG,
    Close.OVERLOADED: LATER,
    Close.RESYNC: RETURN,
    Close.TOKEN_EXPIRED: RETURN,
    Close.BAD_TOKEN: UNAUTHORIZED,
    Close.REVOKED: UNAUTHORIZED,
    Close.PROTOCOL_ERROR: LATER,
    Close.DISCONNECTED: UNAUTHORIZED,
    Close.VERSION: NO_PROTOCOL_7,
    Close.REPLACED: UNAUTHORIZED,
}


class Subscription(Struct, frozen=True):
    """Subscription of a connection to a channel."""

    channel: ChannelName
    joined: bool  # the user is in the room; False: the connection only listens


class PusherSockets(ForeignProtocol, Protocol):
    """Protocol of all Pusher sockets, as their connections use it."""

    def removed(self, connection: Any, room: str, reason: str) -> None:
        """End the subscription to a room that the connection's user may not be in any more."""


class PusherConnection(ForeignConnection):
    """Connection of one socket. Its id is the socket id of the protocol."""

    foreign: PusherSockets

    __slots__ = ("app", "code", "events_at", "events_left", "online", "personal", "subscriptions")

    def __init__(
        self, services: NodeServices, foreign: PusherSockets, dialect: PusherDialect, number: str, app: PusherApp
    ) -> None:
        super().__init__(services, foreign, dialect, number, app.tenant or None)
        self.app = app
        self.code = 0  # close code of this protocol; 0: it follows from ours
        self.subscriptions: dict[str, Subscription] = {}  # by channel
        self.personal = ""  # channel of the signed-in user, once subscribed
        self.online: set[str] | None = None  # users of the watchlist who are online; None without a watchlist
        self.events_at, self.events_left = self.opened_at, float(app.client_events_per_s)

    def wire_code(self, code: int) -> int:
        if code < 4000:
            return code
        return self.code or _CODES.get(code, LATER if invites_return(code) else UNAUTHORIZED)

    def close_as(self, code: int, reason: str, last: bytes | None = None) -> None:
        """Close with a code of this protocol."""
        self.code = code
        self.close(Close.DISCONNECTED, reason, last)

    def send(self, frame: bytes, *, record: bool = True, key: object = None) -> None:
        if self.online is not None or self.personal:
            frame = b"".join([self._own(whole, at) for whole, at in split_frames(frame)])
        if frame:
            super().send(frame, record=record, key=key)

    def _own(self, frame: bytes, at: int) -> bytes:
        """Convert a frame that concerns only this connection. Return other frames unchanged."""
        kind, _ = frame_head(frame, at)
        if kind == "presence.changed" and self.online is not None:
            shown = presence_in(frame, at)
            return self._watched(shown.user, is_online=shown.state != "offline")
        event = personal_event(frame, at, self.personal) if kind == "signal" and self.personal else None
        return event or frame

    def _watched(self, user: str, *, is_online: bool) -> bytes:
        """Return the event of a change between online and offline; empty if there is none."""
        assert self.online is not None
        if is_online == (user in self.online):
            return b""
        (self.online.add if is_online else self.online.discard)(user)
        return frames.watchlist("online" if is_online else "offline", [user])

    def removed_from(self, room: str, reason: str) -> None:
        self.foreign.removed(self, room, reason)

    def take_event(self, now: float) -> bool:
        """Count a client event; return False above the limit of the app."""
        rate = self.app.client_events_per_s
        self.events_left = min(float(rate), self.events_left + (now - self.events_at) * rate)
        self.events_at = now
        if self.events_left < 1.0:
            return False
        self.events_left -= 1.0
        return True

    @property
    def user_channel(self) -> str | None:
        """Return the name of the signed-in user's channel; None without a user."""
        return None if self.session is None else PERSONAL + self.session.user
