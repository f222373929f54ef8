"""Requests and results of Centrifugo's server API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from greendot.auth.model import KeyScope
from greendot.compat.centrifuge.codec_model import StreamPosition

MOST_CHANNELS = 1_000  # of one broadcast
MOST_COMMANDS = 1_000  # of one batch
Channel = Annotated[str, Meta(max_length=255)]


class PublishRequest(Struct):
    """Body of `publish`."""

    channel: Channel
    data: Raw | UnsetType = UNSET
    b64data: str = ""
    skip_history: bool = False
    idempotency_key: str = ""


class BroadcastRequest(Struct):
    """Body of `broadcast`."""

    channels: Annotated[list[Channel], Meta(max_length=MOST_CHANNELS)]
    data: Raw | UnsetType = UNSET
    b64data: str = ""
    skip_history: bool = False
    idempotency_key: str = ""


class SubscribeRequest(Struct):
    """Body of `subscribe` and `unsubscribe`."""

    user: str
    channel: Channel
    client: str = ""
    session: str = ""


class DisconnectCode(Struct):
    """Close code that the app chooses."""

    code: int = 0
    reason: str = ""


class DisconnectRequest(Struct):
    """Body of `disconnect`."""

    user: str
    client: str = ""
    session: str = ""
    whitelist: list[str] = []
    disconnect: DisconnectCode | None = None


class RefreshRequest(Struct):
    """Body of `refresh`."""

    user: str
    client: str = ""
    session: str = ""
    expired: bool = False
    expire_at: int = 0


class ChannelRequest(Struct):
    """Body of `presence`, `presence_stats` and `history_remove`."""

    channel: Channel


class HistoryRequest(Struct):
    """Body of `history`."""

    channel: Channel
    limit: int = 0
    since: StreamPosition | None = None
    reverse: bool = False


class ChannelsRequest(Struct):
    """Body of `channels`."""

    pattern: Channel = ""


class InfoRequest(Struct):
    """Body of `info`."""


class BatchRequest(Struct):
    """Body of `batch`: commands with one method each."""

    commands: Annotated[list[dict[str, Raw]], Meta(max_length=MOST_COMMANDS)]
    parallel: bool = False


REQUESTS: dict[str, tuple[type[Any], KeyScope]] = {  # method → body and scope of the API key
    "publish": (PublishRequest, "rooms:write"),
    "broadcast": (BroadcastRequest, "rooms:write"),
    "subscribe": (SubscribeRequest, "rooms:write"),
    "unsubscribe": (SubscribeRequest, "rooms:write"),
    "disconnect": (DisconnectRequest, "sessions"),
    "refresh": (RefreshRequest, "sessions"),
    "presence": (ChannelRequest, "rooms:read"),
    "presence_stats": (ChannelRequest, "rooms:read"),
    "history": (HistoryRequest, "rooms:read"),
    "history_remove": (ChannelRequest, "rooms:write"),
    "channels": (ChannelsRequest, "rooms:read"),
    "info": (InfoRequest, "stats:read"),
}


class PublishResult(Struct, frozen=True):
    """Result of `publish`: the position of the publication. In a channel without a history there is no position."""

    offset: int = 0
    epoch: str = ""


class BroadcastResult(Struct, frozen=True):
    """Result of `broadcast`: a response for each channel."""

    responses: Sequence[Mapping[str, Any]]


class ChannelInfo(Struct, frozen=True):
    """Channel that has subscribers."""

    num_clients: int


class ChannelsResult(Struct, frozen=True):
    """Result of `channels`."""

    channels: Mapping[str, ChannelInfo]


class NodeInfo(Struct, frozen=True):
    """Node that has answered, with the numbers of the tenant on it."""

    uid: str
    name: str
    version: str
    num_clients: int
    num_users: int
    num_subs: int
    num_channels: int
    uptime: int


class InfoResult(Struct, frozen=True):
    """Result of `info`."""

    nodes: Sequence[NodeInfo]
