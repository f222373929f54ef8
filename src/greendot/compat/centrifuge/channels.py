"""Rooms of channels: found by name, created on first use, read for history and presence.

A channel of a declared namespace needs no creation. A room that is made for a channel is open if the rules of the
namespace let every client subscribe, and closed otherwise. A room that exists keeps its own rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import UNSET, Struct

from greendot.auth.revocation import RevocationService
from greendot.auth.tokens import Tokens
from greendot.compat.centrifuge.channel_model import Namespaces, Rules, opens, room_of
from greendot.compat.centrifuge.codec_model import ClientInfo, HistoryResult, StreamPosition
from greendot.compat.centrifuge.codes_model import CfErr, CfRefused
from greendot.compat.centrifuge.push_model import client_info, publication
from greendot.compat.connection import NodeServices
from greendot.connect.hello import HelloService
from greendot.engine.messages import Topic
from greendot.errors import RoomBeingDeleted
from greendot.protocol.replies import PresentReply
from greendot.store.rooms import NewRoom, Room
from greendot.store.wire import message_page

MOST_PUBLICATIONS = 300  # in one result
MOST_PRESENT = 300  # users in one result for a client: a page of the native protocol


class CentrifugeServices(Struct, frozen=True):
    """Services of the node that the Centrifuge protocol uses."""

    node: NodeServices
    hello: HelloService
    tokens: Tokens
    revocation_service: RevocationService


class Place(NamedTuple):
    """Channel of a tenant with its room and its rules."""

    tenant: str
    channel: str
    room: str
    rules: Rules

    @property
    def topic(self) -> Topic:
        return Topic("room", self.tenant, self.room)

    @property
    def is_open(self) -> bool:
        """Return whether a room that is made for the channel is open."""
        return opens(self.channel, self.rules)

    @property
    def new_room(self) -> NewRoom:
        """Return what a room that is made for the channel is."""
        if not self.is_open:
            return "closed"
        return "open" if self.rules.declared else "provisional"


class Channels:
    """Channels of the tenants that serve the Centrifuge protocol."""

    def __init__(self, services: CentrifugeServices, namespaces: Mapping[str, Namespaces]) -> None:
        self._store = services.node.store
        self._rooms = services.node.rooms
        self._namespaces = namespaces

    def place(self, tenant: str, channel: str) -> Place:
        """Return the room and the rules of a channel. Raise CfRefused if there can be no such channel."""
        namespaces = self._namespaces.get(tenant)
        if namespaces is None:
            raise CfRefused(CfErr.NOT_AVAILABLE, "the tenant does not serve the Centrifuge protocol")
        room = room_of(channel)
        if room is None:
            raise CfRefused(
                CfErr.BAD_REQUEST,
                "not a valid channel: its name has 1 to 128 characters; any but A-Z a-z 0-9 _ . @ + - count threefold",
            )
        rules = namespaces.rules(channel)
        if rules is None:
            raise CfRefused(CfErr.UNKNOWN_CHANNEL, f"unknown namespace in channel {channel!r}; set it in `namespaces`")
        return Place(tenant, channel, room, rules)

    async def find(self, place: Place) -> Room | None:
        """Return the room of a channel; None if it does not exist."""
        found = await self._rooms.membership.find(place.tenant, place.room)
        return found if isinstance(found, Room) else await self._store.room(place.tenant, place.room)

    async def make(self, place: Place) -> Room:
        """Return the room of a channel, which is created if it does not exist."""
        found = await self.find(place)
        return found if found is not None else await self._create(place)

    async def make_again(self, place: Place) -> Room:
        """Do the same, for a room that this node may know although it was deleted: read the store."""
        found = await self._store.room(place.tenant, place.room)
        return found if found is not None else await self._create(place)

    async def _create(self, place: Place) -> Room:
        try:
            return await self._store.put_room(place.tenant, place.room, new=place.new_room)
        except RoomBeingDeleted:
            why = f"the room of channel {place.channel!r} was deleted a moment ago; try again later"
            raise CfRefused(CfErr.UNKNOWN_CHANNEL, why, temporary=True) from None

    def epoch(self, place: Place) -> str | None:
        """Return the epoch of a room that has listeners on this node; None if it is not known here."""
        local = self._rooms.local(place.topic)
        return None if local is None or local.room is None else epoch_of(local.room)

    async def history(
        self, place: Place, limit: int, since: StreamPosition | None, reverse: bool, reader: str | None = None
    ) -> HistoryResult:
        """Return publications and the position of the channel, read at one moment."""
        if not place.rules.history:
            raise CfRefused(CfErr.NOT_AVAILABLE, f"channel {place.channel!r} keeps no history")
        limit = MOST_PUBLICATIONS if limit < 0 else min(limit, MOST_PUBLICATIONS)
        start = None if since is None else since.offset
        after, before = (None, start) if reverse else (start or 0, None)
        found = await self._store.room_page(
            place.tenant, place.room, after=after, before=before, limit=max(1, limit), reader=reader
        )
        if found is None:
            return HistoryResult([], "", 0)
        if since is not None and since.epoch not in ("", epoch_of(found.room)):
            raise CfRefused(CfErr.UNRECOVERABLE, "unrecoverable position: the channel has another epoch")
        records = found.messages if limit else []
        profiles = await self._rooms.profiles.learnt(place.tenant, {record.user for record in records})
        messages = message_page(records, profiles, newest=reverse)
        publications = [publication(message) for message in messages]
        return HistoryResult(publications[::-1] if reverse else publications, epoch_of(found.room), found.room.head)


def epoch_of(room: Room) -> str:
    """Return the epoch of a room's messages. A room that was deleted and created again has another epoch."""
    return str(room.epoch)


def clients_in(found: PresentReply) -> dict[str, ClientInfo]:
    """Return the occupants of a room as clients of a channel, one for each user."""
    infos = {user: profile.info for user, profile in found.profiles.items()}
    return {user: client_info(user, infos.get(user, UNSET)) for user in found.users}
