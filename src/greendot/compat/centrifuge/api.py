"""Methods of Centrifugo's server API, for the tenant of the API key."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct, UnsetType

from greendot import __version__
from greendot.compat.centrifuge.api_model import (
    BroadcastRequest,
    BroadcastResult,
    ChannelInfo,
    ChannelRequest,
    ChannelsRequest,
    ChannelsResult,
    DisconnectRequest,
    HistoryRequest,
    InfoRequest,
    InfoResult,
    NodeInfo,
    PublishRequest,
    PublishResult,
    RefreshRequest,
    SubscribeRequest,
)
from greendot.compat.centrifuge.channel_model import channel_of
from greendot.compat.centrifuge.channels import CentrifugeServices, Channels, Place, clients_in, epoch_of
from greendot.compat.centrifuge.codec_model import Empty, HistoryResult, PresenceResult, PresenceStatsResult
from greendot.compat.centrifuge.codes_model import CfErr, CfError, CfRefused, close_of_app, error_of
from greendot.compat.centrifuge.push_model import PUBLICATION, SERVER
from greendot.engine.messages import Deliver, MemberRemoved, RoomOrder, Topic
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable, Unstorable
from greendot.ids import incarnation_of, new_message_id, valid_id
from greendot.node.cluster_rpc import ClusterRpc
from greendot.node.needed_nodes import nodes_of_user
from greendot.protocol.cluster import ListenedQuery
from greendot.protocol.codec import MAX_FRAME, encode_event
from greendot.protocol.codes import Close
from greendot.protocol.decoding import MAX_DEPTH, VAST_NUMBER, decode, has_vast_number, is_too_deep
from greendot.protocol.events import Signal
from greendot.store.rooms import Draft

AT_ONCE = 50  # channels of one request that are handled at the same time
MOST_PRESENT = 1_000  # users in one result
LONGEST_REASON = 30  # characters of a close reason that other nodes get


class ApiServices(Struct, frozen=True):
    """Services of the node that only the server API uses."""

    rpc: ClusterRpc
    tenant_stats: Callable[[str], dict[str, Any]]  # numbers of a tenant on this node
    disconnect: Callable[[Iterable[str], int, str, str], Awaitable[int]]  # sessions, close code, reason, tenant
    started_at: int  # milliseconds UTC


class ServerApi:
    """Methods of the server API. Each takes the tenant and the decoded body, and returns the result."""

    def __init__(self, services: CentrifugeServices, channels: Channels, more: ApiServices) -> None:
        self._node = services.node
        self._channels = channels
        self._more = more
        self._engine = services.node.engine
        self._clock = services.node.clock
        self.methods: dict[str, Callable[[str, Any], Awaitable[Any]]] = {
            "publish": self.publish,
            "broadcast": self.broadcast,
            "subscribe": self.subscribe,
            "unsubscribe": self.unsubscribe,
            "disconnect": self.disconnect,
            "refresh": self.refresh,
            "presence": self.presence,
            "presence_stats": self.presence_stats,
            "history": self.history,
            "history_remove": self.history_remove,
            "channels": self.channels,
            "info": self.info,
        }

    async def call(self, method: str, tenant: str, body: Any) -> dict[str, Any]:
        """Run a method; return its result or its error."""
        return await self._outcome(self.methods[method](tenant, body))

    @staticmethod
    async def _outcome(work: Awaitable[Any]) -> dict[str, Any]:
        try:
            return {"result": await work}
        except CfRefused as refused:
            return {"error": refused.error}
        except Refused as refused:
            return {"error": error_of(refused)}
        except (EngineUnavailable, StoreUnavailable) as error:
            why = f"the engine or the store is not available; try again later ({error})"
            return {"error": CfError(CfErr.INTERNAL, why, temporary=True)}
        except Unstorable as error:
            return {"error": CfError(CfErr.BAD_REQUEST, f"a value of this request cannot be stored: {error}")}

    # --- publications ---

    async def publish(self, tenant: str, asked: PublishRequest) -> PublishResult:
        body = _body(asked)
        return await self._publish(self._channels.place(tenant, asked.channel), asked, body)

    async def broadcast(self, tenant: str, asked: BroadcastRequest) -> BroadcastResult:
        body = _body(asked)
        responses: list[dict[str, Any]] = []

        async def one(channel: str) -> PublishResult:
            return await self._publish(self._channels.place(tenant, channel), asked, body)

        for at in range(0, len(asked.channels), AT_ONCE):
            some = asked.channels[at : at + AT_ONCE]
            responses += await asyncio.gather(*(self._outcome(one(channel)) for channel in some))
        return BroadcastResult(responses)

    async def _publish(self, place: Place, asked: PublishRequest | BroadcastRequest, body: Raw) -> PublishResult:
        await self._node.backpressure.check_room(place.tenant, place.room)
        if asked.skip_history or not place.rules.history:
            self._node.rate_limits.app_signal(place.tenant, place.room)
            signal = Signal(sender=SERVER, name=None, kind=PUBLICATION, room=place.room, body=body)
            self._engine.publish(place.topic, Deliver(encode_event(signal, self._clock.now_ms())))
            return PublishResult()
        self._node.rate_limits.app_message(place.tenant, place.room)
        room = await self._channels.make(place)
        draft = Draft(SERVER, None, bytes(body), _key(asked.idempotency_key), self._clock.now_ms())
        record = await self._node.room_messages.append(place.tenant, place.room, draft)
        return PublishResult(record.seq, epoch_of(room))

    # --- clients ---

    async def subscribe(self, tenant: str, asked: SubscribeRequest) -> Empty:
        await self._order(tenant, asked, join=True)
        return Empty()

    async def unsubscribe(self, tenant: str, asked: SubscribeRequest) -> Empty:
        """Remove a user from the room of a channel. The user may return, unless the room refuses it."""
        await self._order(tenant, asked, join=False)
        if asked.client or asked.session:
            return Empty()
        # Native clients follow no orders.
        place = self._channels.place(tenant, asked.channel)
        nodes = await nodes_of_user(self._engine, tenant, asked.user)
        why = "unsubscribed by the server"
        await self._more.rpc.call(
            nodes, lambda asker, number: MemberRemoved(tenant, place.room, asked.user, why, asker, number)
        )
        return Empty()

    async def _order(self, tenant: str, asked: SubscribeRequest, *, join: bool) -> None:
        place = self._channels.place(tenant, asked.channel)
        only = asked.client or asked.session
        order = RoomOrder(tenant, asked.user, place.room, only, join)
        nodes = await nodes_of_user(self._engine, tenant, asked.user)
        for node in {incarnation_of(only)} & nodes if only else nodes:
            self._engine.publish(Topic("node", "", node), order)

    async def disconnect(self, tenant: str, asked: DisconnectRequest) -> Empty:
        given = asked.disconnect
        is_own = given is not None and 4000 <= given.code < 5000
        code = close_of_app(given.code) if given is not None and is_own else int(Close.DISCONNECTED)
        reason = (given.reason if given is not None else "") or "disconnected by the app"
        await self._end(tenant, asked.user, asked.client or asked.session, code, reason, asked.whitelist)
        return Empty()

    async def refresh(self, tenant: str, asked: RefreshRequest) -> Empty:
        """End connections whose tokens the app no longer accepts. This API cannot extend a token."""
        if not asked.expired:
            why = "the end of a connection is that of its token; only `expired: true` is available"
            raise CfRefused(CfErr.NOT_AVAILABLE, why)
        await self._end(tenant, asked.user, asked.client or asked.session, Close.TOKEN_EXPIRED, "expired", ())
        return Empty()

    async def _end(
        self, tenant: str, user: str, only: str, code: int, reason: str, kept: list[str] | tuple[str, ...]
    ) -> None:
        sessions = [entry.session for entry in await self._engine.sessions(tenant, user)]
        ended = [one for one in sessions if only in ("", one) and one not in kept]
        await self._more.disconnect(ended, code, reason[:LONGEST_REASON], tenant)

    # --- reads ---

    async def presence(self, tenant: str, asked: ChannelRequest) -> PresenceResult:
        topic = self._with_presence(tenant, asked.channel).topic
        found = await self._node.rooms.present_page(topic, None, None, MOST_PRESENT)
        return PresenceResult(clients_in(found))

    async def presence_stats(self, tenant: str, asked: ChannelRequest) -> PresenceStatsResult:
        topic = self._with_presence(tenant, asked.channel).topic
        found = await self._node.rooms.present(topic, None, None, 1)
        return PresenceStatsResult(found.count, found.count)

    def _with_presence(self, tenant: str, channel: str) -> Place:
        place = self._channels.place(tenant, channel)
        if not place.rules.presence:
            raise CfRefused(CfErr.NOT_AVAILABLE, f"channel {channel!r} has no presence")
        return place

    async def history(self, tenant: str, asked: HistoryRequest) -> HistoryResult:
        place = self._channels.place(tenant, asked.channel)
        return await self._channels.history(place, asked.limit, asked.since, asked.reverse)

    async def history_remove(self, tenant: str, asked: ChannelRequest) -> Empty:
        why = "messages of a room are deleted one by one, or with the room: DELETE /v1/rooms/{room}"
        raise CfRefused(CfErr.NOT_AVAILABLE, why)

    async def channels(self, tenant: str, asked: ChannelsRequest) -> ChannelsResult:
        """Return the channels with subscribers, on all nodes. A room with native clients only is not among them."""
        found = await self._node.listened(ListenedQuery(tenant))
        named = {channel_of(room): ChannelInfo(count) for room, count in found.items()}
        wanted = {name for name in named if not asked.pattern or fnmatchcase(name, asked.pattern)}
        return ChannelsResult({name: info for name, info in named.items() if name in wanted})

    async def info(self, tenant: str, asked: InfoRequest) -> InfoResult:
        """Return this node with the numbers of the caller's tenant only."""
        own = self._more.tenant_stats(tenant)
        up_s = (self._clock.now_ms() - self._more.started_at) // 1000
        name = str(own["node"])
        return InfoResult([NodeInfo(name, name, __version__, own["connections"], own["users"], 0, 0, up_s)])


def _body(asked: PublishRequest | BroadcastRequest) -> Raw:
    """Return the data of a publication. Raise CfRefused if it is missing, or if clients could not read it."""
    data = None if isinstance(asked.data, UnsetType) else bytes(asked.data)
    if data is None and asked.b64data:
        try:
            data = b64decode(asked.b64data, validate=True)
            decode(data, object)
        except (ValueError, msgspec.DecodeError):
            raise CfRefused(CfErr.BAD_REQUEST, "field `b64data` must be JSON in base64; send `data`") from None
    if data is None:
        raise CfRefused(CfErr.BAD_REQUEST, "field `data` is missing; give any JSON value")
    if len(data) > MAX_FRAME:
        raise CfRefused(CfErr.LIMIT_EXCEEDED, f"field `data` may have at most {MAX_FRAME} bytes")
    if is_too_deep(data):
        raise CfRefused(CfErr.BAD_REQUEST, f"field `data` may be nested at most {MAX_DEPTH} levels deep")
    if has_vast_number(data):
        raise CfRefused(CfErr.BAD_REQUEST, f"field `data` {VAST_NUMBER}")
    return Raw(data)


def _key(given: str) -> str:
    """Return the idempotency key of a message. A key that is no id is replaced by its hash."""
    if not given:
        return new_message_id()
    return given if valid_id(given) else blake2b(given.encode(errors="surrogatepass"), digest_size=16).hexdigest()
