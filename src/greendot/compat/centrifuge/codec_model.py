"""Frames of the Centrifuge protocol in JSON: commands of clients, replies and pushes of the server.

A frame has one or more commands or replies, with a newline between two of them. So no reply may contain a
newline, not even as white space in the JSON of a user (`compact`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from greendot.compat.centrifuge.codes_model import CfErr, CfError, CfRefused
from greendot.protocol.codec import text_frame
from greendot.protocol.decoding import MAX_DEPTH, VAST_NUMBER, decoder, has_vast_number, is_too_deep

MOST_METHOD = 200  # characters of the method of an RPC
MOST_COMMANDS = 1_000  # commands in one frame
Offset = Annotated[int, Meta(ge=0, le=2**53)]
CommandNumber = Annotated[int, Meta(ge=0, le=2**32)]
NULL = Raw(b"null")


class StreamPosition(Struct):
    """Position in the history of a channel."""

    offset: Offset = 0
    epoch: str = ""


class Position(Struct):
    """Position in a channel that the client knows from an earlier connection."""

    recover: bool = False
    epoch: str = ""
    offset: Offset = 0


class Connect(Struct):
    """Command `connect`, the first of a connection."""

    token: str = ""
    name: str = ""
    version: str = ""
    subs: dict[str, Position] = {}  # server-side subscriptions that the client had


class Subscribe(Struct):
    """Command `subscribe`."""

    channel: str
    token: str = ""
    recover: bool = False
    epoch: str = ""
    offset: Offset = 0
    join_leave: bool = False
    type: int = 0


class Unsubscribe(Struct):
    """Command `unsubscribe`."""

    channel: str


class Publish(Struct):
    """Command `publish`."""

    channel: str
    data: Raw = NULL


class Presence(Struct):
    """Command `presence`."""

    channel: str


class PresenceStats(Struct):
    """Command `presence_stats`."""

    channel: str


class History(Struct):
    """Command `history`. Without a limit, only the position of the channel is wanted."""

    channel: str
    limit: int = 0
    since: StreamPosition | None = None
    reverse: bool = False


class Refresh(Struct):
    """Command `refresh`: a new connection token."""

    token: str = ""


class SubRefresh(Struct):
    """Command `sub_refresh`: a new subscription token."""

    channel: str
    token: str = ""


class Rpc(Struct):
    """Command `rpc`."""

    method: Annotated[str, Meta(max_length=MOST_METHOD)] = ""
    data: Raw = NULL


class Send(Struct):
    """Command `send`, which gets no reply."""


class Ping(Struct):
    """Empty command: the answer to a ping of the server."""


Method = (
    Connect
    | Subscribe
    | Unsubscribe
    | Publish
    | Presence
    | PresenceStats
    | History
    | Refresh
    | SubRefresh
    | Rpc
    | Send
    | Ping
)


class _Command(Struct):
    """Command: a number and exactly one method."""

    id: CommandNumber = 0
    connect: Connect | None = None
    subscribe: Subscribe | None = None
    unsubscribe: Unsubscribe | None = None
    publish: Publish | None = None
    presence: Presence | None = None
    presence_stats: PresenceStats | None = None
    history: History | None = None
    refresh: Refresh | None = None
    sub_refresh: SubRefresh | None = None
    rpc: Rpc | None = None
    send: Send | None = None
    ping: Ping | None = None


class Command(Struct, frozen=True):
    """Command of a client. `id` is 0 if the client wants no reply."""

    id: int
    method: Method


METHODS = tuple(name for name in _Command.__struct_fields__ if name != "id")
PONG = Command(0, Ping())
_read = decoder(_Command)
_read_any = decoder(dict)


class BadCommand(CfRefused):
    """Text that is no command. Without a number (`id` 0) the connection is closed, because no reply is possible."""

    def __init__(self, code: CfErr, message: str, id: int = 0) -> None:
        super().__init__(code, message)
        self.id = id


def split_frame(text: str) -> list[str]:
    """Return the commands in a frame. Raise BadCommand if there are too many."""
    if text.count("\n") >= MOST_COMMANDS:
        raise BadCommand(CfErr.BAD_REQUEST, f"a frame may have at most {MOST_COMMANDS} commands")
    return [line for line in text.split("\n") if line and not line.isspace()]


def read_command(text: str) -> Command:
    """Return the command in a line. Raise BadCommand with the reason if there is none."""
    if text == "{}":
        return PONG
    try:
        read = _read(text)
    except msgspec.DecodeError as error:
        raise _explain(text, error) from None
    if is_too_deep(text):
        raise BadCommand(CfErr.BAD_REQUEST, f"a command may be nested at most {MAX_DEPTH} levels deep", read.id)
    found = [method for name in METHODS if (method := getattr(read, name)) is not None]
    if not found and read.id:
        raise BadCommand(CfErr.METHOD_NOT_FOUND, f"the command has none of the methods {', '.join(METHODS)}", read.id)
    if len(found) > 1:
        raise BadCommand(CfErr.BAD_REQUEST, "a command has exactly one method; send several commands", read.id)
    method = found[0] if found else PONG.method
    if not read.id and not isinstance(method, Send | Ping):
        raise BadCommand(CfErr.BAD_REQUEST, "a command needs an `id` above 0")
    if isinstance(method, Publish | Rpc) and has_vast_number(bytes(method.data)):
        raise BadCommand(CfErr.BAD_REQUEST, f"field `data` {VAST_NUMBER}", read.id)
    return Command(read.id, method)


def _explain(text: str, error: msgspec.DecodeError) -> BadCommand:
    """Return the error of a line that is not a command. It has the number of the command if the line has a number."""
    if not isinstance(error, msgspec.ValidationError):
        return BadCommand(CfErr.BAD_REQUEST, "a command must be one JSON object")
    try:
        number = _read_any(text).get("id")
    except msgspec.DecodeError:
        number = None
    id = number if type(number) is int and 0 < number <= 2**32 else 0
    return BadCommand(CfErr.BAD_REQUEST, str(error).replace("`$.", "`"), id)


# --- replies and pushes ---


class ClientInfo(Struct, frozen=True, omit_defaults=True):
    """User in a channel. There is one for each user, so `client` is the id of the user."""

    user: str
    client: str = ""
    conn_info: Raw | UnsetType = UNSET


class Publication(Struct, frozen=True, omit_defaults=True):
    """Publication: a message of the room, or a signal, which has no offset."""

    data: Raw
    offset: int = 0
    info: ClientInfo | UnsetType = UNSET
    tags: Mapping[str, str] | UnsetType = UNSET


class ConnectResult(Struct, frozen=True, omit_defaults=True):
    """Result of `connect`."""

    client: str
    version: str
    expires: bool = False
    ttl: int = 0
    ping: int = 0
    pong: bool = False
    session: str = ""
    node: str = ""
    subs: Mapping[str, SubscribeResult] | UnsetType = UNSET


class SubscribeResult(Struct, frozen=True, omit_defaults=True):
    """Result of `subscribe`."""

    expires: bool = False
    ttl: int = 0
    recoverable: bool = False
    positioned: bool = False
    epoch: str = ""
    offset: int = 0
    recovered: bool = False
    was_recovering: bool = False
    publications: Sequence[Publication] = ()


class Subscribed(Struct, frozen=True, omit_defaults=True):
    """Push to a client that the app has subscribed to a channel."""

    recoverable: bool = False
    epoch: str = ""
    offset: int = 0
    positioned: bool = False


class RefreshResult(Struct, frozen=True, omit_defaults=True):
    """Result of `refresh`."""

    client: str
    version: str
    expires: bool = False
    ttl: int = 0


class SubRefreshResult(Struct, frozen=True, omit_defaults=True):
    """Result of `sub_refresh`."""

    expires: bool = False
    ttl: int = 0


class PresenceResult(Struct, frozen=True):
    """Result of `presence`."""

    presence: Mapping[str, ClientInfo]


class PresenceStatsResult(Struct, frozen=True):
    """Result of `presence_stats`."""

    num_clients: int
    num_users: int


class HistoryResult(Struct, frozen=True):
    """Result of `history`."""

    publications: Sequence[Publication]
    epoch: str
    offset: int


class RpcResult(Struct, frozen=True):
    """Result of `rpc`."""

    data: Raw


class Empty(Struct, frozen=True):
    """Result of a command that returns nothing."""


Result = (
    ConnectResult
    | SubscribeResult
    | RefreshResult
    | SubRefreshResult
    | PresenceResult
    | PresenceStatsResult
    | HistoryResult
    | RpcResult
    | Empty
)
_encode = msgspec.json.Encoder().encode
PING_FRAME = text_frame(b"{}")


def compact(body: Raw | bytes) -> Raw:
    """Return JSON without raw newlines, because a newline ends a reply. In strings, JSON escapes newlines."""
    data = bytes(body)
    if b"\n" in data or b"\r" in data:
        data = msgspec.json.format(data, indent=-1)
    return Raw(data)


def reply_frame(id: int, method: str, result: Result) -> bytes:
    """Return the reply to a command as a frame."""
    return text_frame(_encode({"id": id, method: result}))


def error_frame(id: int, error: CfError) -> bytes:
    """Return the error of a command as a frame."""
    return text_frame(_encode({"id": id, "error": error}))


def push_frame(channel: str, kind: str, value: Any) -> bytes:
    """Return a push of a channel as a frame. `kind` is `pub`, `join`, `leave`, `unsubscribe` or `subscribe`."""
    return text_frame(_encode({"push": {"channel": channel, kind: value}}))
