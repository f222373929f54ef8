"""Commands of Centrifuge clients that concern a channel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from msgspec import UNSET

from greendot.compat.centrifuge.channel_model import Namespaces, channel_of, needs_token, users_of
from greendot.compat.centrifuge.channels import (
    MOST_PRESENT,
    CentrifugeServices,
    Channels,
    Place,
    clients_in,
)
from greendot.compat.centrifuge.codec_model import (
    Empty,
    History,
    HistoryResult,
    Position,
    Presence,
    PresenceResult,
    PresenceStats,
    PresenceStatsResult,
    Publication,
    Publish,
    SubRefresh,
    SubRefreshResult,
    Subscribe,
    Subscribed,
    SubscribeResult,
    Unsubscribe,
    compact,
    push_frame,
)
from greendot.compat.centrifuge.codes_model import EXPIRED, CfErr, CfRefused
from greendot.compat.centrifuge.connection import CentrifugeConnection, Subscription
from greendot.compat.centrifuge.dialect_model import CentrifugeDialect
from greendot.compat.centrifuge.push_model import PUBLICATION, client_info, publication
from greendot.compat.centrifuge.tokens import SubscriptionGrant, read_subscription
from greendot.engine.messages import RoomOrder, Topic
from greendot.errors import Refused, TokenError
from greendot.node.session import Connection, Session
from greendot.protocol import commands as wire
from greendot.protocol.codes import Err
from greendot.protocol.replies import JoinReply, PresentReply
from greendot.store.rooms import Room

MOST_TTL_S = 2**31 - 1  # largest number of a `ttl` in Protobuf
GRACE_S = 25.0  # time after the end of a subscription token in which the client may refresh it


class Authorised(NamedTuple):
    """Result of the authorisation of a subscription."""

    room: Room | None = None  # room of the channel, as this node knows it; None if the channel makes no room
    grant: SubscriptionGrant | None = None  # what the subscription token grants


class ChannelCommands:
    """Handlers of the commands that concern a channel."""

    def __init__(self, services: CentrifugeServices, channels: Channels, namespaces: Mapping[str, Namespaces]) -> None:
        self._services = services
        self._channels = channels
        self._clock = services.node.clock
        self._timers = services.node.context.timers
        self._execute = services.node.dispatcher.execute
        self._namespaces = namespaces
        # One for all clients of a tenant that read the same, so that frames are converted once for all.
        self._dialects: dict[tuple[str, bool, bool], CentrifugeDialect] = {}

    def dialect(self, connection: CentrifugeConnection, tenant: str, *, join_leave: bool = False) -> CentrifugeDialect:
        """Return the dialect of a tenant's clients: in JSON or Protobuf, with or without joins and leaves."""
        key = tenant, connection.is_binary, join_leave
        found = self._dialects.get(key)
        if found is None:
            found = self._dialects[key] = make_dialect(connection.is_binary, self._namespaces[tenant], join_leave)
        return found

    # --- subscriptions ---

    async def subscribe(self, connection: CentrifugeConnection, session: Session, asked: Subscribe) -> SubscribeResult:
        place = self._place_to_join(connection, session, asked)
        return await self._join(
            connection, session, place, asked, lambda: self._authorise(connection, session, place, asked.token)
        )

    async def subscribe_claimed(
        self, connection: CentrifugeConnection, session: Session, channel: str, known: Position | None
    ) -> SubscribeResult:
        """Subscribe a client to a channel that its connection token names, until a new token does not name it."""
        result = await self.subscribe_granted(connection, session, channel, known)
        connection.subscriptions[channel].is_claimed = True
        return result

    def keep_claimed(self, connection: CentrifugeConnection, session: Session, channels: Collection[str]) -> None:
        """End the server-side subscriptions of the earlier token, except those to `channels`."""
        for subscription in [*connection.subscriptions.values()]:
            if subscription.is_claimed and subscription.channel not in channels:
                self._end(connection, session, subscription, "the new token does not name this channel")

    async def subscribe_granted(
        self, connection: CentrifugeConnection, session: Session, channel: str, known: Position | None = None
    ) -> SubscribeResult:
        """Subscribe a client to a channel that its token or the app names. `known` is the position to recover from."""
        known = known or Position()
        asked = Subscribe(channel, recover=known.recover, epoch=known.epoch, offset=known.offset)
        place = self._place_to_join(connection, session, asked)
        return await self._join(connection, session, place, asked, lambda: self._grant(connection, session, place))

    def _place_to_join(self, connection: CentrifugeConnection, session: Session, asked: Subscribe) -> Place:
        if asked.type:
            raise CfRefused(CfErr.NOT_AVAILABLE, "this server has only subscriptions to streams (type 0)")
        place = self._channels.place(session.tenant, asked.channel)
        if place.room in (connection.rooms or ()) or place.room in connection.joining:
            raise CfRefused(CfErr.ALREADY_SUBSCRIBED, f"the connection is subscribed to channel {asked.channel!r}")
        # The node may have removed the connection from the room: a grant from before must not count again.
        self.forget_lost(connection, session, place.channel)
        return place

    async def _authorise(
        self, connection: CentrifugeConnection, session: Session, place: Place, token: str
    ) -> Authorised:
        """Grant the room of a channel that the token or the channel's name allows.

        Otherwise the room decides: it is open, the user is a member, or the connection token names the room.
        """
        if token:
            grant = await self._read_token(session, place, token)
            return (await self._grant(connection, session, place))._replace(grant=grant)
        users = users_of(place.channel)
        if users is not None and session.user not in users:
            raise CfRefused(CfErr.PERMISSION_DENIED, f"channel {place.channel!r} is for the users in its name")
        if users is not None and place.rules.creates and not needs_token(place.channel, place.rules):
            return await self._grant(connection, session, place)
        return Authorised(await self._channels.make(place) if place.is_open else None)

    async def _read_token(self, session: Session, place: Place, token: str) -> SubscriptionGrant:
        tokens, revocation_service = self._services.tokens, self._services.revocation_service
        now = self._clock.now_ms()
        return await read_subscription(tokens, revocation_service, token, session, place.channel, now)

    async def _grant(self, connection: CentrifugeConnection, session: Session, place: Place) -> Authorised:
        room = await self._channels.make(place)
        connection.grant(session, place.room)
        return Authorised(room)

    async def _join(
        self,
        connection: CentrifugeConnection,
        session: Session,
        place: Place,
        asked: Subscribe,
        authorise: Callable[[], Awaitable[Authorised]],
    ) -> SubscribeResult:
        """Join the room of a channel. `authorise` runs after the limits."""
        recovers = asked.recover and place.rules.history and place.rules.recover
        command = wire.RoomJoin(room=place.room, after=asked.offset if recovers else None)
        authorised = Authorised()

        async def prepare() -> None:
            nonlocal authorised
            self._services.node.rooms.check_number(connection, session, place.room)
            authorised = await authorise()

        connection.joining.add(place.room)
        try:
            try:
                joined = await self._execute(connection, command, prepare)
            except Refused as refused:
                if not await self._was_deleted(place, authorised.room, refused):
                    raise
                joined = await self._execute(connection, command, prepare)
            if connection.closing:
                raise CfRefused(CfErr.INTERNAL, "the connection was closed", temporary=True)
        except BaseException as error:
            connection.take_back(session, place.room)
            if isinstance(error, Refused) and error.code == Err.NOT_A_MEMBER:
                raise _no_access(place) from None
            raise
        finally:
            connection.joining.discard(place.room)
        assert isinstance(joined, JoinReply)
        granted = authorised.grant
        # No await below: a token that is revoked from now on ends the subscription.
        if granted is not None:
            self._check_revoked(connection, session, place, granted)
        ends_at = None if granted is None else granted.ends_at
        subscription = connection.subscriptions[place.channel] = Subscription(place.channel, place.room, place.rules)
        subscription.token_id = None if granted is None else granted.grants.token_id
        if ends_at is not None:
            self._set_end(connection, subscription, ends_at)
        if asked.join_leave and place.rules.join_leave:
            connection.dialect = self.dialect(connection, session.tenant, join_leave=True)
        return self._subscribed(place, asked, joined, ends_at)

    async def _was_deleted(self, place: Place, known: Room | None, refused: Refused) -> bool:
        """Return whether a join was refused because the room that this node knew was deleted; create it again then.

        The announcement of a deletion may arrive here later than a client that knows of the deletion.
        """
        if known is None or refused.code not in (Err.NOT_A_MEMBER, Err.NO_SUCH_ROOM):
            return False
        return (await self._channels.make_again(place)).epoch != known.epoch

    def _check_revoked(
        self, connection: CentrifugeConnection, session: Session, place: Place, granted: SubscriptionGrant
    ) -> None:
        """Leave the room and raise CfRefused if the subscription token was revoked during the join."""
        try:
            self._services.revocation_service.check(granted.grants)
        except TokenError as error:
            self._services.node.rooms.leave(connection, place.room)
            connection.take_back(session, place.room)
            raise CfRefused(CfErr.PERMISSION_DENIED, f"subscription token: {error}") from None

    def _subscribed(self, place: Place, asked: Subscribe, joined: JoinReply, ends_at: int | None) -> SubscribeResult:
        ttl_s = 0 if ends_at is None else self._ttl_s(ends_at)
        if not place.rules.history:
            return SubscribeResult(expires=bool(ttl_s), ttl=ttl_s)
        epoch = self._channels.epoch(place) or ""
        recovered = joined.recovered and asked.epoch in ("", epoch)
        return SubscribeResult(
            expires=bool(ttl_s),
            ttl=ttl_s,
            recoverable=place.rules.recover,
            positioned=True,
            epoch=epoch,
            offset=joined.head,
            recovered=recovered,
            was_recovering=asked.recover,
            publications=[publication(message) for message in joined.messages] if recovered else (),
        )

    async def unsubscribe(self, connection: CentrifugeConnection, session: Session, asked: Unsubscribe) -> Empty:
        place = self._channels.place(session.tenant, asked.channel)
        await self._execute(connection, wire.RoomLeave(room=place.room))
        self._forget(connection, session, place.channel, place.room)
        return Empty()

    def forget_lost(self, connection: CentrifugeConnection, session: Session, channel: str) -> None:
        """Forget a subscription and the grants of its token: the node has removed the connection from its room."""
        subscription = connection.subscriptions.get(channel)
        if subscription is not None and subscription.room not in (connection.rooms or ()):
            self._forget(connection, session, channel, subscription.room)

    def _forget(self, connection: CentrifugeConnection, session: Session, channel: str, room: str) -> None:
        subscription = connection.subscriptions.pop(channel, None)
        if subscription is not None:
            self._timers.cancel(subscription.timer)
        connection.take_back(session, room)

    # --- orders of the app ---

    def ordered(self, connection: Connection, order: RoomOrder) -> None:
        """Subscribe or unsubscribe a client, as the app has requested with the server API."""
        session = connection.session
        if not isinstance(connection, CentrifugeConnection) or session is None:
            return
        if order.join:
            self._services.node.context.tasks.spawn(self._subscribe_ordered(connection, session, order.room))
        else:
            local = self._services.node.rooms.local(Topic("room", session.tenant, order.room))
            if local is not None:
                local.removals += 1  # a join that is under way is admitted again, without the grant
            self._services.node.rooms.removal.lose(connection, (order.room,), "unsubscribed by the server")
            self._forget(connection, session, channel_of(order.room), order.room)

    async def _subscribe_ordered(self, connection: CentrifugeConnection, session: Session, room: str) -> None:
        channel = channel_of(room)
        try:
            result = await self.subscribe_granted(connection, session, channel)
        except (CfRefused, Refused):  # subscribed before, or at the limit of rooms
            return
        pushed = Subscribed(result.recoverable, result.epoch, result.offset, result.positioned)
        connection.send(push_frame(channel, "subscribe", pushed))

    # --- ends of subscriptions ---

    async def refresh(self, connection: CentrifugeConnection, session: Session, asked: SubRefresh) -> SubRefreshResult:
        place = self._channels.place(session.tenant, asked.channel)
        subscription = connection.subscriptions.get(place.channel)
        if subscription is None or place.room not in (connection.rooms or ()):
            raise CfRefused(CfErr.PERMISSION_DENIED, f"the connection is not subscribed to channel {place.channel!r}")
        granted = await self._read_token(session, place, asked.token)
        if connection.subscriptions.get(place.channel) is not subscription:
            raise CfRefused(CfErr.PERMISSION_DENIED, f"the subscription to channel {place.channel!r} has ended")
        self._timers.cancel(subscription.timer)
        subscription.timer = None
        subscription.token_id = granted.grants.token_id
        if granted.ends_at is None:
            return SubRefreshResult()
        self._set_end(connection, subscription, granted.ends_at)
        return SubRefreshResult(expires=True, ttl=self._ttl_s(granted.ends_at))

    def _ttl_s(self, ends_at: int) -> int:
        return min(max(1, (ends_at - self._clock.now_ms()) // 1000), MOST_TTL_S)

    def token_revoked(self, tenant: str, token_id: str) -> None:
        """End the subscriptions of a subscription token.

        One pass over all connections: there is no index by token id, because few tokens have one and fewer are revoked.
        """
        for connection in [*self._services.node.context.registry.connections.values()]:
            session = connection.session
            if not isinstance(connection, CentrifugeConnection) or session is None or session.tenant != tenant:
                continue
            for subscription in [*connection.subscriptions.values()]:
                if subscription.token_id == token_id:
                    self._end(connection, session, subscription, "the subscription token was revoked")

    def _end(self, connection: CentrifugeConnection, session: Session, subscription: Subscription, reason: str) -> None:
        """Remove a connection from the room of a subscription, with what the subscription grants."""
        self._services.node.rooms.removal.lose(connection, (subscription.room,), reason)
        self._forget(connection, session, subscription.channel, subscription.room)

    def _set_end(self, connection: CentrifugeConnection, subscription: Subscription, ends_at: int) -> None:
        left_s = (ends_at - self._clock.now_ms()) / 1000
        subscription.timer = self._timers.set(max(0.0, left_s) + GRACE_S, self._expired, (connection, subscription))

    def _expired(self, of: tuple[CentrifugeConnection, Subscription]) -> None:
        """End a subscription whose token was not refreshed in time."""
        connection, subscription = of
        session = connection.session
        if session is None or connection.subscriptions.get(subscription.channel) is not subscription:
            return
        if subscription.room not in (connection.rooms or ()):
            self.forget_lost(connection, session, subscription.channel)
            return
        self._services.node.rooms.leave(connection, subscription.room)
        self._forget(connection, session, subscription.channel, subscription.room)
        why = {"code": EXPIRED, "reason": "subscription expired"}
        connection.send(push_frame(subscription.channel, "unsubscribe", why))

    # --- publications ---

    async def publish(self, connection: CentrifugeConnection, session: Session, asked: Publish) -> Empty:
        place = self._channels.place(session.tenant, asked.channel)
        if not place.rules.publish:
            raise CfRefused(CfErr.PERMISSION_DENIED, f"clients may not publish to channel {place.channel!r}")
        if place.rules.history:
            await self._execute(connection, wire.RoomSend(room=place.room, body=asked.data))
            return Empty()
        await self._execute(connection, wire.SignalSend(room=place.room, kind=PUBLICATION, body=asked.data))
        if place.room in (connection.rooms or ()):
            # The node leaves out the sender of a signal. A Centrifuge client gets its own publications, too.
            own = Publication(compact(asked.data), info=client_info(session.user, UNSET))
            connection.send(push_frame(place.channel, "pub", own), record=False)
        return Empty()

    # --- reads ---

    async def presence(self, connection: CentrifugeConnection, session: Session, asked: Presence) -> PresenceResult:
        return PresenceResult(clients_in(await self._present(connection, session, asked.channel, MOST_PRESENT)))

    async def presence_stats(
        self, connection: CentrifugeConnection, session: Session, asked: PresenceStats
    ) -> PresenceStatsResult:
        found = await self._present(connection, session, asked.channel, 1)
        return PresenceStatsResult(found.count, found.count)

    async def _present(
        self, connection: CentrifugeConnection, session: Session, channel: str, limit: int
    ) -> PresentReply:
        place = self._channels.place(session.tenant, channel)
        if not place.rules.presence:
            raise CfRefused(CfErr.NOT_AVAILABLE, f"channel {channel!r} has no presence")
        try:
            found = await self._execute(connection, wire.RoomPresent(room=place.room, limit=limit))
        except Refused as refused:
            if refused.code == Err.NOT_A_MEMBER and place.is_open and await self._channels.find(place) is None:
                return PresentReply([], 0)
            raise
        assert isinstance(found, PresentReply)
        return found

    async def history(self, connection: CentrifugeConnection, session: Session, asked: History) -> HistoryResult:
        place = self._channels.place(session.tenant, asked.channel)
        self._services.node.dispatcher.admit(session, wire.RoomHistory)
        if place.is_open and await self._channels.find(place) is None:
            return HistoryResult([], "", 0)
        return await self._services.node.rooms.membership.throughout(
            session,
            place.room,
            lambda: self._channels.history(place, asked.limit, asked.since, asked.reverse, session.user),
        )


def _no_access(place: Place) -> CfRefused:
    """Return the refusal of a channel whose room does not admit the user. It is the same for a missing room."""
    why = f"no access to channel {place.channel!r}: its room is closed to this user, or does not exist"
    if not place.rules.creates:
        why += "; the app creates the room, signs a subscription token, or declares the namespace in `namespaces`"
    return CfRefused(CfErr.PERMISSION_DENIED, why)


def make_dialect(is_binary: bool, namespaces: Namespaces, join_leave: bool) -> CentrifugeDialect:
    if not is_binary:
        return CentrifugeDialect(namespaces, join_leave=join_leave)
    from greendot.compat.centrifuge.protobuf import ProtobufDialect  # its library is optional

    return ProtobufDialect(namespaces, join_leave=join_leave)
