"""Names of Pusher channels, and the rooms that they stand for.

A channel is the room of the same name. Room ids may not have `,` and `;`, but channel names may. These become
`+c` and `+s`, because no channel name has a `+`.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from greendot.ids import valid_id

ChannelKind = Literal["public", "private", "encrypted", "presence", "user"]
PERSONAL = "#server-to-user-"  # begins the channel of a signed-in user
_NAME = re.compile(r"[A-Za-z0-9_\-=@,.;]{1,164}\Z")
_CACHES = ("cache-", "private-cache-", "private-encrypted-cache-", "presence-cache-")


class ChannelName(NamedTuple):
    """Channel with its kind and its room. The channel of a user has the user's id as its room."""

    name: str
    kind: ChannelKind
    room: str
    caches: bool = False  # a subscriber gets the last event

    @property
    def needs_auth(self) -> bool:
        return self.kind in ("private", "encrypted", "presence")


def parse_channel(name: str) -> ChannelName | None:
    """Return the channel of a name; None if no room can have the name."""
    if name.startswith(PERSONAL):
        user = name.removeprefix(PERSONAL)
        return ChannelName(name, "user", user) if valid_id(user) else None
    if _NAME.match(name) is None:
        return None
    room = room_id(name)
    return ChannelName(name, _kind(name), room, name.startswith(_CACHES)) if valid_id(room) else None


def room_id(name: str) -> str:
    """Return the id of a channel's room, or its beginning for the beginning of a name."""
    return name.replace(",", "+c").replace(";", "+s")


def _kind(name: str) -> ChannelKind:
    if name.startswith("private-encrypted-"):
        return "encrypted"
    if name.startswith("private-"):
        return "private"
    return "presence" if name.startswith("presence-") else "public"


def channel_of(room: str) -> str:
    """Return the name of a room's channel."""
    return room.replace("+c", ",").replace("+s", ";") if "+" in room else room
