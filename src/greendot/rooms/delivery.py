"""Records on their way to a room's listeners: in order, each once, none left out.

The hub forwards only what is next. What comes early is held; if what is missing does not come within a moment it is
read from the store, once for all listeners. Heads are compared with the store now and then, so that a message whose
signal was lost is found although nothing more is said.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from greendot.engine.messages import Deliver, Part
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.node.channel import RoomKey
from greendot.node.context import NodeContext
from greendot.node.subscriptions import Subscriptions
from greendot.node.timer_model import Timer
from greendot.protocol.codec import encode_event
from greendot.protocol.events import Resync
from greendot.rooms.local_room import RECOVER, LocalRoom, Recent
from greendot.store.port import Store
from greendot.store.rooms import Record
from greendot.store.wire import message_frame
from greendot.telemetry import log_events
from greendot.telemetry.log import log

GAP_S = 0.05  # how long what is missing may take before it is read
COMPARE_S = 15.0  # between two looks at the heads of all rooms here
AGAIN_S = 1.0  # after the store could not be read
ATTEMPTS = 10  # to read what was missed, while more is said
AT_ONCE = 1_000  # rooms compared in one read


class RoomDelivery:
    """The lines of all local rooms."""

    def __init__(
        self, store: Store, context: NodeContext, local: Subscriptions[LocalRoom], changed: Callable[[LocalRoom], None]
    ) -> None:
        self.gaps = 0  # times something was missing and was read
        self.recoveries = 0  # times somebody came back and asked for what was missed
        self._store = store
        self._context = context
        self._local = local
        self._timer: Timer | None = None
        self._changed = changed  # told of a room whose members are not those known here

    def _set_timer(self) -> None:
        """While there are rooms here their heads are compared with the store's."""
        if self._timer is None:
            self._timer = self._context.timers.set(COMPARE_S * random.uniform(0.8, 1.0), self._on_timer)

    def begin(self, local: LocalRoom, head: int) -> None:
        """A room is followed from here on; what came while its head was read finds its place."""
        self._set_timer()
        self._forward(local, local.line.skip_to(head))
        if local.hinted > local.cursor:
            self._miss(local, 0.0)
        elif local.line.gap:
            self._miss(local, GAP_S)

    # --- from the bus ---

    def received(self, local: LocalRoom, message: Deliver) -> None:
        assert message.seq is not None
        if not message.frame:  # a hint: the content is in the store only
            local.hinted = max(local.hinted, message.seq)
            if local.hinted > local.cursor and local.opening is None:
                self._miss(local, 0.0)
            return
        self._forward(local, local.line.offer(message.seq, message.frame))
        if local.line.gap and local.opening is None:
            self._miss(local, 0.0 if local.line.overflown else GAP_S)

    def _forward(self, local: LocalRoom, frames: list[bytes]) -> None:
        room, seq = local.channel.topic.name, local.cursor - len(frames)
        for number, frame in enumerate(frames, start=seq + 1):
            self._context.hub.offer(local.channel, frame, record=True, key=RoomKey(room, number))

    # --- gaps ---

    def _miss(self, local: LocalRoom, wait_s: float) -> None:
        if local.gap_timer is None and not local.reading:
            local.gap_timer = self._context.timers.set(wait_s, self._over, local)

    def _over(self, local: LocalRoom) -> None:
        local.gap_timer = None
        if local.line.gap or local.hinted > local.cursor:
            self._context.tasks.spawn(self.fill(local))

    async def fill(self, local: LocalRoom) -> None:
        """Read what is missing and send it on. What arrives meanwhile finds its place by its number."""
        if local.reading:
            return
        local.reading, hinted = True, local.hinted
        self.gaps += 1
        try:
            await self._fill(local)
        except StoreUnavailable as error:
            log(log_events.WORK_LATER, work="a gap in a room", reason=error, room=local.channel.topic.name)
            local.gap_timer = self._context.timers.set(AGAIN_S * random.uniform(0.5, 1), self._over, local)
            return
        finally:
            local.reading = False
        if local.hinted > max(hinted, local.cursor):
            self._miss(local, 0.0)  # a hint that came while the gap was read: the read may not have seen its record
        elif local.line.gap:
            self._miss(local, GAP_S)
        else:
            local.hinted = 0  # everything hinted at was read, or the store does not have it

    async def _fill(self, local: LocalRoom) -> None:
        topic = local.channel.topic
        records = await self._store.messages(topic.tenant, topic.name, after=local.cursor, limit=RECOVER)
        for record in records:
            self._forward(local, local.line.offer(record.seq, message_frame(record)))
        if len(records) < RECOVER:
            return
        # Too much for a live stream: clients fetch it when they want it.
        room = await self._store.room(topic.tenant, topic.name)
        if room is not None and room.head > local.cursor:
            frame = encode_event(Resync(f"room:{topic.name}"), self._context.clock.now_ms())
            self._context.hub.offer(local.channel, frame, record=True, key=RoomKey(topic.name, ("resync",)))
            self._forward(local, local.line.skip_to(room.head))

    # --- comparing ---

    def _on_timer(self, _: None) -> None:
        self._timer = None
        if self._local.within(Part()):
            self._set_timer()
            self._context.tasks.spawn(self._compare_quietly())

    async def _compare_quietly(self) -> None:
        try:
            await self.compare(Part())
        except (StoreUnavailable, EngineUnavailable) as error:
            log(log_events.WORK_LATER, work="comparing rooms", reason=error)

    async def compare(self, part: Part) -> None:
        """Fill what is behind the store; where the members have changed unheard, they are looked up first."""
        rooms = {_key(local): local for local in self._local.within(part)}
        for keys in _chunks([*rooms]):
            for key, room in (await self._store.heads(keys)).items():
                local = rooms[key]
                if room.members_rev > local.members_rev:
                    self._changed(local)
                elif room.head > local.cursor:
                    await self.fill(local)

    # --- returning ---

    async def missed(self, local: LocalRoom, after: int) -> list[Record] | None:
        """The records after `after` up to the cursor; None if they are too many. Read once, however many return."""
        self.recoveries += 1
        if local.cursor - after > RECOVER:
            return None
        for _ in range(ATTEMPTS):
            recent = local.recent
            if recent is not None and recent.last >= local.cursor and (kept := recent.after(after)) is not None:
                return [record for record in kept if record.seq <= local.cursor]
            async with local.returning:
                if local.recent is recent:
                    await self._read_recent(local, after)
                    recent = local.recent
            if recent is not None and recent.after(after) is None:
                return None  # too many bytes
        raise StoreUnavailable("what was said goes on faster than it is read")

    async def _read_recent(self, local: LocalRoom, after: int) -> None:
        topic, recent = local.channel.topic, local.recent
        if recent is None or recent.after(after) is None:
            # As far back as anybody may come, for those who come behind this one.
            recent = Recent(max(0, local.cursor - RECOVER))
        upto = local.cursor
        while recent.last < upto:
            records = await self._store.messages(topic.tenant, topic.name, after=recent.last, limit=RECOVER)
            if not records:
                break
            recent.add(records)
        local.recent = recent


def _key(local: LocalRoom) -> tuple[str, str]:
    return local.channel.topic.tenant, local.channel.topic.name


def _chunks(keys: list[tuple[str, str]]) -> Iterable[list[tuple[str, str]]]:
    return (keys[at : at + AT_ONCE] for at in range(0, len(keys), AT_ONCE))
