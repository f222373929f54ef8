"""Subscriptions of Pusher clients: authorised, then joined to the room or attached to it.

Public channels need no signature. The others need a signature of the app; the channel of a user needs a sign-in.

In a presence channel, the user joins the room. In another channel, the user joins the room if the connection has a user
and the room exists, so that the rules of the room apply. Otherwise the connection only listens.
"""

from __future__ import annotations

from typing import Any

import msgspec

from greendot.compat.connection import NodeServices
from greendot.compat.pusher import frames
from greendot.compat.pusher.cache import EventCache
from greendot.compat.pusher.channel_events import ChannelEvents
from greendot.compat.pusher.channel_model import ChannelName, parse_channel
from greendot.compat.pusher.connection import PusherConnection, Subscription
from greendot.compat.pusher.dialect import member_info
from greendot.compat.pusher.frames import SubscribeData
from greendot.compat.pusher.identity import Identities, NotAccepted
from greendot.compat.pusher.signature_model import channel_text, is_signed
from greendot.connect.dispatch import refusal_of
from greendot.engine.messages import Topic
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable
from greendot.node.channel import RoomKey
from greendot.protocol import commands as wire
from greendot.protocol.codes import Err
from greendot.protocol.replies import PresentReply
from greendot.rooms.members import DELETED
from greendot.store.rooms import Room

PAGE = 300  # members in one read
MOST_WITHOUT_USER = 100  # channels of a connection that has no user
MOST_MEMBERS = 3_000  # members in the reply to a subscription


class Subscriber:
    """Service for the subscriptions of all connections."""

    def __init__(
        self, services: NodeServices, identities: Identities, cache: EventCache, events: ChannelEvents
    ) -> None:
        self._services = services
        self._identities = identities
        self._cache = cache
        self._events = events

    async def subscribe(self, connection: PusherConnection, asked: SubscribeData) -> None:
        """Subscribe to a channel, or send the client the reason for the refusal."""
        try:
            channel = parse_channel(asked.channel)
            if channel is None:
                raise NotAccepted(
                    f"{asked.channel[:64]!r} cannot be a channel: use A-Z a-z 0-9 _ - = @ , . ; and at most "
                    "128 characters, the first one a letter, a digit or _",
                    status=400,
                )
            await self._subscribe(connection, channel, asked)
        except NotAccepted as error:
            self._refuse(connection, asked, error)
        except (Refused, EngineUnavailable, StoreUnavailable) as error:
            self._refuse(connection, asked, _not_accepted(refusal_of(error)))

    @staticmethod
    def _refuse(connection: PusherConnection, asked: SubscribeData, error: NotAccepted) -> None:
        connection.send(frames.subscription_error(asked.channel[:200], error.kind, str(error), error.status))

    async def _subscribe(self, connection: PusherConnection, channel: ChannelName, asked: SubscribeData) -> None:
        known = channel.name in connection.subscriptions
        most = self._services.rate_limits.most_rooms(connection.app.tenant)
        if connection.session is None and channel.kind != "presence":
            most = min(most, MOST_WITHOUT_USER)
        if not known and len(connection.subscriptions) >= most:
            raise NotAccepted(f"a connection may have at most {most} channels", "LimitReached", 403)
        if channel.kind == "user":
            if channel.name != connection.user_channel:
                raise NotAccepted("this channel belongs to another user, or the connection has not signed in")
            connection.personal = channel.name
            self._keep(connection, Subscription(channel, joined=False))
            connection.send(frames.subscribed(channel.name))
            return
        if channel.needs_auth:
            check_auth(connection, channel, asked)
        if channel.kind == "presence":
            await self._enter(connection, channel, asked)
        else:
            await self._listen(connection, channel)

    # --- presence channels ---

    async def _enter(self, connection: PusherConnection, channel: ChannelName, asked: SubscribeData) -> None:
        await self._identify(connection, asked)
        self._identities.allow(connection, channel.room)
        try:
            await self._enter_allowed(connection, channel)
        finally:
            self._disallow_unless_kept(connection, channel)
        await self._cached(connection, channel)

    def _disallow_unless_kept(self, connection: PusherConnection, channel: ChannelName) -> None:
        """Take back the right to join a room if the subscription has failed."""
        if channel.needs_auth and channel.name not in connection.subscriptions:
            self._identities.disallow(connection, channel.room)

    async def _enter_allowed(self, connection: PusherConnection, channel: ChannelName) -> None:
        is_there = await self._check_members(connection, channel)
        connection.hold()  # events of members are sent after the list of members
        first: list[tuple[bytes, object]] = []
        try:
            if channel.name not in connection.subscriptions:
                await self._join(connection, channel)
                if not is_there:
                    self._events.entered(connection.app, channel, connection.session.user if connection.session else "")
            members = await self._members(connection, channel)
            # The key names the room, so that the list of members can be withdrawn from a client that is removed.
            key = RoomKey(channel.room, ("members",))
            first.append((frames.subscribed(channel.name, {"presence": members}), key))
        finally:
            connection.release(first)

    async def _identify(self, connection: PusherConnection, asked: SubscribeData) -> None:
        if asked.channel_data is None:
            if connection.session is None:
                raise NotAccepted("a presence channel needs channel_data, or a connection that has signed in")
            return
        try:
            member = frames.read_member(asked.channel_data)
        except msgspec.DecodeError as error:
            raise NotAccepted(f"channel_data is wrong: {error}", status=400) from None
        grants = self._identities.grants(connection, str(member.user_id), member.user_info)
        is_new = connection.session is None
        await self._identities.open(connection, grants)
        if is_new:
            await self.user_known(connection)

    async def _check_members(self, connection: PusherConnection, channel: ChannelName) -> bool:
        """Return whether the user is in the channel already. Raise NotAccepted if a new member does not fit into it.

        The engine is not asked if no limit or webhook of the app needs the answer, or for a repeated subscription. Then
        the result is True.
        """
        app, session = connection.app, connection.session
        wants = bool(app.presence_members) or "member_added" in app.webhook_events
        if not wants or channel.name in connection.subscriptions or session is None:
            return True
        page = await self._services.engine.present_page(app.tenant, channel.room, None, 0, session.user)
        if 0 < app.presence_members <= page.total and not page.is_there:
            raise NotAccepted(
                f"a presence channel may have at most {app.presence_members} members", "LimitReached", 403
            )
        return page.is_there

    async def _join(self, connection: PusherConnection, channel: ChannelName) -> None:
        await self._services.dispatcher.execute(connection, wire.RoomJoin(room=channel.room))
        self._keep(connection, Subscription(channel, joined=True))

    async def _members(self, connection: PusherConnection, channel: ChannelName) -> dict[str, Any]:
        session = connection.session
        assert session is not None
        hash_: dict[str, Any] = {}
        after: str | None = None
        while len(hash_) < MOST_MEMBERS:
            page = await self._services.dispatcher.execute(
                connection, wire.RoomPresent(room=channel.room, after=after, limit=PAGE)
            )
            assert isinstance(page, PresentReply)
            for user in page.users:
                profile = page.profiles.get(user)
                hash_[user] = {} if profile is None else member_info(profile.name, profile.info)
            if len(page.users) < PAGE:
                break
            after = page.users[-1]
        if hash_.get(session.user, {}) == {}:  # the profile may be on its way to the store
            own = session.grants
            hash_[session.user] = member_info(own.name, msgspec.Raw(own.info) if own.info else None)
        return {"ids": [*hash_], "hash": hash_, "count": len(hash_)}

    # --- other channels ---

    async def _listen(self, connection: PusherConnection, channel: ChannelName) -> None:
        if channel.name not in connection.subscriptions:
            if channel.kind != "public":
                self._identities.allow(connection, channel.room)
            try:
                await self._attach(connection, channel)
            finally:
                self._disallow_unless_kept(connection, channel)
        connection.send(frames.subscribed(channel.name))
        await self._cached(connection, channel)
        self._events.counts_changed(connection.app, channel, connection.session)

    async def _attach(self, connection: PusherConnection, channel: ChannelName) -> None:
        """Join the room as the user, or listen to it. Raise NotAccepted if the client may do neither."""
        tenant, is_user = connection.app.tenant, connection.session is not None
        if not is_user:
            self._services.dispatcher.check_without_user(connection, tenant, wire.RoomJoin)
        room = await self._services.rooms.membership.find(tenant, channel.room)
        if is_user and isinstance(room, Room):
            await self._join(connection, channel)
            return
        if channel.kind == "public" and isinstance(room, Room) and not room.open:
            raise _not_open()
        found: list[Room | None] = []  # the room as `may` has seen it, in the turn in which the client is attached

        def may(room: Room | None) -> bool:
            found[:] = [room]
            return room is None or not (is_user or (channel.kind == "public" and not room.open))

        topic = Topic("room", tenant, channel.room)
        if await self._services.rooms.listeners.attach(connection, topic, may):
            self._keep(connection, Subscription(channel, joined=False))
        elif is_user and found and not connection.closing:  # created since the read above
            await self._join(connection, channel)
        elif found:
            raise _not_open()

    async def _cached(self, connection: PusherConnection, channel: ChannelName) -> None:
        if channel.caches and not connection.closing:
            try:
                found = await self._cache.last(connection.app, channel)
            except StoreUnavailable:
                return  # the client is subscribed, and gets the next event
            if channel.name not in connection.subscriptions:
                return  # the client was removed during the read
            if found is None:
                self._events.cache_missed(connection.app, channel)
            connection.send(found or frames.cache_miss(channel.name), key=RoomKey(channel.room, ("cached",)))

    def _keep(self, connection: PusherConnection, subscription: Subscription) -> None:
        if connection.closing:  # the connection began to close while the room was opened
            self._detach(connection, subscription)
            return
        is_new = subscription.channel.name not in connection.subscriptions
        connection.subscriptions[subscription.channel.name] = subscription
        if is_new:
            self._events.subscribed(connection.app, subscription.channel)

    # --- ends ---

    def unsubscribe(self, connection: PusherConnection, name: str) -> None:
        subscription = connection.subscriptions.pop(name, None)
        if subscription is not None:
            self._detach(connection, subscription)
            self._events.left(connection.app, subscription.channel, connection.session)

    def _detach(self, connection: PusherConnection, subscription: Subscription) -> None:
        channel = subscription.channel
        if channel.kind == "user":
            connection.personal = ""
        elif subscription.joined:
            self._services.rooms.leave(connection, channel.room)
        else:
            self._services.rooms.listeners.detach(connection, Topic("room", connection.app.tenant, channel.room))
        if channel.needs_auth:
            self._identities.disallow(connection, channel.room)

    def end(self, connection: PusherConnection) -> None:
        """Detach an ended connection. Rooms that it has joined are left after the grace, as for other clients."""
        ended, connection.subscriptions = connection.subscriptions, {}
        for one in ended.values():
            if not one.joined and one.channel.kind != "user":
                topic = Topic("room", connection.app.tenant, one.channel.room)
                self._services.rooms.listeners.detach(connection, topic)
            self._events.left(connection.app, one.channel, connection.session)

    def removed(self, connection: PusherConnection, room: str, reason: str) -> None:
        """End the subscriptions to a room from which the user was removed. A new subscription is authorised again."""
        for one in [*connection.subscriptions.values()]:
            if one.channel.kind == "user" or one.channel.room != room:
                continue
            if reason == DELETED and not one.joined:
                continue  # a channel needs no room
            self.unsubscribe(connection, one.channel.name)
            if not one.joined:  # a user who has joined gets `room.changed`
                why = f"this user was removed from the channel: {reason}"
                connection.send(frames.subscription_error(one.channel.name, "AuthError", why, 403))

    async def user_known(self, connection: PusherConnection) -> None:
        """Join the rooms that a connection listened to before it had a user, so that their rules apply to the user."""
        if connection.session is not None and self._services.is_invisible(connection.session.key):
            self.shown_or_hidden(connection)
        for one in [*connection.subscriptions.values()]:
            topic = Topic("room", connection.app.tenant, one.channel.room)
            local = None if one.channel.kind == "user" or one.joined else self._services.rooms.local(topic)
            is_kept = connection.subscriptions.get(one.channel.name) is one  # not if a join meanwhile ended it
            if local is None or local.room is None or connection.closing or not is_kept:
                continue
            try:
                await self._services.dispatcher.execute(connection, wire.RoomJoin(room=one.channel.room))
                if connection.subscriptions.get(one.channel.name) is one:
                    self._keep(connection, Subscription(one.channel, joined=True))
                else:  # the client has got an error
                    self._services.rooms.leave(connection, one.channel.room)
            except (Refused, EngineUnavailable, StoreUnavailable) as error:
                if connection.subscriptions.get(one.channel.name) is not one:
                    continue
                self.unsubscribe(connection, one.channel.name)
                refused = _not_accepted(refusal_of(error))
                connection.send(frames.subscription_error(one.channel.name, refused.kind, str(refused), refused.status))

    def shown_or_hidden(self, connection: PusherConnection) -> None:
        """Send the numbers of subscribers: the connection's user has become invisible, or visible again."""
        for one in connection.subscriptions.values():
            self._events.count_soon(connection.app, one.channel)

    def room_closed(self, connection: PusherConnection, room: str) -> None:
        """End the subscription to a public channel whose room is not open any more. Users who have joined stay."""
        for one in [*connection.subscriptions.values()]:
            if one.channel.room == room and one.channel.kind == "public" and not one.joined:
                self.unsubscribe(connection, one.channel.name)
                why = "this room is not open any more"
                connection.send(frames.subscription_error(one.channel.name, "AuthError", why, 403))


def check_auth(connection: PusherConnection, channel: ChannelName, asked: SubscribeData) -> None:
    """Raise NotAccepted unless the app has signed the subscription for this socket."""
    key, _, signature = (asked.auth or "").partition(":")
    text = channel_text(connection.id, channel.name, asked.channel_data)
    if key != connection.app.key or not is_signed(connection.app.secrets, text, signature):
        raise NotAccepted("the auth of this subscription is wrong; check key and secret of the app's auth endpoint")


def _not_open() -> NotAccepted:
    return NotAccepted("this room is not open; subscribe to it as a user, or open the room", status=403)


def _not_accepted(refused: Refused) -> NotAccepted:
    full = refused.code == Err.TOO_MANY
    status = {Err.UNAVAILABLE: 503, Err.RATE_LIMITED: 429}.get(Err(refused.code), 403)
    return NotAccepted(refused.message, "LimitReached" if full else "AuthError", status)
