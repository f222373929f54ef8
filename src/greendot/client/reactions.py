"""Live reactions to the messages of a room. Pure: no sockets, no tasks."""

from __future__ import annotations

from collections import deque

from msgspec import UNSET, Struct

from greendot.client.codec import body_of
from greendot.protocol.events import ReactionCount, RoomMessage

MOST_MESSAGES = 10_000  # newest messages whose reactions are kept
MOST_EARLY = 1_000  # newest reactions kept for pages that were read before them and arrive after them
_SETS = {"react": True, "unreact": False}


class _Counted(Struct):
    counts: dict[str, ReactionCount]
    reacted: int  # number of the record up to which the reactions are counted
    deleted: bool


class Reactions:
    """Reactions to the messages of one room, counted as the records arrive.

    Call `apply` with every message of the room: those of `join`, of `history` and of events, in any order and any
    number of times. Each record is counted once, by its number. Reactions of `user` are `mine`.
    """

    def __init__(self, user: str | None = None) -> None:
        self._user = user
        self._messages: dict[int, _Counted] = {}
        self._early: deque[RoomMessage] = deque(maxlen=MOST_EARLY)

    def of(self, seq: int) -> list[ReactionCount]:
        """Return the reactions to the message with number `seq`, in the order in which they were first set."""
        known = self._messages.get(seq)
        return [] if known is None else [*known.counts.values()]

    def apply(self, message: RoomMessage) -> int | None:
        """Apply a record; return the number of the message whose reactions have changed, or None."""
        if message.op in _SETS:
            if not self._early or message.seq > self._early[-1].seq:  # ascending: records of older pages are not early
                self._early.append(message)
            return self._count(message)
        if message.op == "delete" and message.ref in self._messages:
            self._messages[message.ref] = _Counted({}, message.seq, deleted=True)
            return message.ref
        return self._show(message) if message.ref is None else None

    def _show(self, message: RoomMessage) -> int | None:
        seq, known = message.seq, self._messages.get(message.seq)
        reacted = seq if message.reacted is UNSET else message.reacted
        if known is not None and (known.deleted or reacted <= known.reacted):
            return None
        counts = [] if message.reactions is UNSET else message.reactions
        self._messages[seq] = _Counted({of.reaction: of for of in counts}, reacted, deleted=message.op == "erased")
        if len(self._messages) > MOST_MESSAGES:
            del self._messages[min(self._messages)]
        if self._early and self._early[-1].seq > reacted:
            for record in self._early:
                self._count(record)
        return seq if counts or known is not None else None

    def _count(self, record: RoomMessage) -> int | None:
        """Count a record that sets or removes a reaction, unless it is counted already."""
        known = self._messages.get(record.ref or 0)
        if known is None or known.deleted or record.seq <= known.reacted:
            return None
        reaction, on = body_of(record)["reaction"], _SETS[record.op or ""]
        before = known.counts.get(reaction) or ReactionCount(reaction, 0, False)
        mine = on if record.user == self._user else before.mine
        after = ReactionCount(reaction, before.count + (1 if on else -1), mine)
        known.reacted = record.seq
        known.counts[reaction] = after
        if after.count <= 0:
            del known.counts[reaction]
        return record.ref
