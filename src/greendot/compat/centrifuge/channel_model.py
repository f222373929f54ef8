"""Channels of Centrifuge clients: their rooms, their namespaces, their rules.

A channel is the room of the same name. Room ids do not allow all characters of channel names, such as the `:` of
`news:42`. These are written as `=` and two hexadecimal digits for each byte: room `news=3A42`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from greendot.ids import ID_PATTERN

NAMESPACE, PRIVATE, BOUNDARY = ":", "$", "#"  # as in Centrifugo's default settings
DEFAULT = "default"  # name of the rules for channels without a namespace
MOST_CHARACTERS = 255  # in a channel's name
PUSHER = ("private-", "presence-")  # beginnings of names that Pusher clients need an authorisation for
_is_id = re.compile(ID_PATTERN).match
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.@+-")
_FIRST = _PLAIN - frozenset(b".@+-")
_ESCAPE = re.compile(rb"=([0-9A-F]{2})")


def room_of(channel: str) -> str | None:
    """Return the id of the channel's room; None if the name is empty, too long or not valid text."""
    if not 0 < len(channel) <= MOST_CHARACTERS:
        return None
    try:
        data = channel.encode()
    except UnicodeEncodeError:
        return None
    if _is_id(channel) and _ESCAPE.search(data) is None:
        return channel
    first, rest = data[0], data[1:]
    # An id cannot begin with a sign: `_` marks an escape at the beginning. A real `_` before an escape is escaped.
    is_marked = first not in _FIRST or (first == ord("_") and rest[:1] != b"" and rest[0] not in _PLAIN)
    room = (b"_=%02X%b" % (first, _escaped(rest)) if is_marked else _escaped(data)).decode()
    return room if _is_id(room) else None


def _escaped(data: bytes) -> bytes:
    return b"".join([b"%c" % byte if byte in _PLAIN else b"=%02X" % byte for byte in data])


def channel_of(room: str) -> str:
    """Return the channel of a room: the one whose room it is."""
    if "=" not in room:
        return room
    data = room.encode()
    found = _ESCAPE.search(data)
    if found is None:
        return room
    if found.start() == 1 and data[0] == ord("_"):
        data = data[1:]
    return _ESCAPE.sub(lambda escape: bytes([int(escape[1], 16)]), data).decode(errors="replace")


class Rules(Struct, frozen=True):
    """Rules of a namespace."""

    history: bool = True  # publications are messages of the room; False: signals, which are not stored
    recover: bool = True  # clients recover publications that they have missed
    presence: bool = True
    join_leave: bool = True
    publish: bool = True  # clients may publish
    subscribe: bool = True  # clients may subscribe without a subscription token
    creates: bool = True  # a subscription without a token creates the room if it does not exist
    declared: bool = True  # by the operator; False: the app may not know of the room, and closes it by creating it


class Namespaces:
    """Rules of a tenant's channels.

    Channels of no declared namespace have the default rules. They create rooms only if `creates`. Any client could then
    open a room by its name before the app creates the room for its members, so the app's creation closes such a room.
    """

    __slots__ = ("_default", "_named")

    def __init__(self, named: Mapping[str, Rules], *, creates: bool = False) -> None:
        self._named = dict(named)
        self._default = self._named.get(DEFAULT, Rules(creates=creates, declared=False))

    def rules(self, channel: str) -> Rules | None:
        """Return the rules of a channel; None if there are namespaces, and its own is not among them."""
        name, separator, _ = channel.removeprefix(PRIVATE).partition(NAMESPACE)
        if not separator or not self._named:
            return self._default
        return self._named.get(name)


def needs_token(channel: str, rules: Rules) -> bool:
    """Return whether a client needs a subscription token for the channel."""
    return channel.startswith(PRIVATE) or not rules.subscribe


def opens(channel: str, rules: Rules) -> bool:
    """Return whether a room that is made for the channel is open."""
    if not rules.creates or needs_token(channel, rules) or channel.startswith(PUSHER):
        return False
    return users_of(channel) is None


def users_of(channel: str) -> frozenset[str] | None:
    """Return the users to whom the name of a channel such as `dialog#42,43` limits it; None without such a limit."""
    _, separator, users = channel.rpartition(BOUNDARY)
    return frozenset(users.split(",")) if separator else None
