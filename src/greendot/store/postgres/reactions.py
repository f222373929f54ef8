"""Reactions to messages, in PostgreSQL. Triggers keep their counts.

The reactions of a batch are decided in memory, one after the other, and written together. The heads of their rooms are
locked, so no other transaction changes the reactions of these rooms meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from greendot.ids import Key
from greendot.rooms.reactions_model import REACTING, Choice, MessageReactions
from greendot.store.postgres.pool import Link
from greendot.store.reactions import ReactionCount
from greendot.store.rooms import Draft, Record

RECORD = "m.room, m.seq, m.id, m.user_id, m.name, m.body, m.at, m.ref, m.op, m.traceparent"
_WIDTH = RECORD.count(",") + 1
# The message of each reaction, the record that set the reaction, and the counts of the message.
LOADED = f"""
    SELECT k.tenant, k.user_id, k.reaction, {RECORD}, {RECORD.replace("m.", "s.")}, (
        SELECT json_object_agg(c.reaction, c.count)::text FROM greendot_reaction_counts c
        WHERE c.tenant = k.tenant AND c.room = k.room AND c.ref = k.ref
    )
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[])
        AS k (tenant, room, ref, user_id, reaction)
    JOIN greendot_messages m ON m.tenant = k.tenant AND m.room = k.room AND m.seq = k.ref AND m.op IS NULL
    LEFT JOIN greendot_reactions r ON r.tenant = k.tenant AND r.room = k.room AND r.ref = k.ref
        AND r.user_id = k.user_id AND r.reaction = k.reaction
    LEFT JOIN greendot_messages s ON s.tenant = k.tenant AND s.room = k.room AND s.seq = r.seq
"""
DELETE = """
    DELETE FROM greendot_reactions r
    USING unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[])
        AS k (tenant, room, ref, user_id, reaction)
    WHERE r.tenant = k.tenant AND r.room = k.room AND r.ref = k.ref AND r.user_id = k.user_id
      AND r.reaction = k.reaction
"""
INSERT = """
    INSERT INTO greendot_reactions (tenant, room, ref, user_id, reaction, seq)
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[])
"""
# Column of a page of messages `m`: the counted reactions, for the reader $6. Empty if all were removed; NULL if there
# were none.
COUNTED = """
    (
        SELECT coalesce(json_agg(json_build_array(c.reaction, c.count, EXISTS (
            SELECT FROM greendot_reactions x
            WHERE x.tenant = $1 AND x.room = $2 AND x.ref = m.seq AND x.user_id = $6::text AND x.reaction = c.reaction
        )) ORDER BY c.first) FILTER (WHERE c.reaction <> ''), '[]')::text
        FROM greendot_reaction_counts c WHERE c.tenant = $1 AND c.room = $2 AND c.ref = m.seq AND c.count >= 0
        HAVING count(*) > 0
    )
"""

decode_counts: Callable[[str], list[ReactionCount]] = msgspec.json.Decoder(list[ReactionCount]).decode
_decode_loaded: Callable[[str], dict[str, int]] = msgspec.json.Decoder(dict[str, int]).decode


class ReactionWrites:
    """Reactions that one batch of messages sets, removes or deletes with their message."""

    def __init__(self) -> None:
        self._messages: dict[tuple[Key, int], MessageReactions] = {}
        self._records: dict[tuple[Key, int], Record] = {}

    async def load(self, link: Link, batch: Iterable[tuple[Key, Draft]]) -> None:
        """Read the messages that the batch reacts to. The heads of their rooms are locked."""
        asked = {(*key, d.ref, d.user, d.reaction) for key, d in batch if d.op in REACTING}
        for row in await link.fetch(LOADED, *zip(*sorted(asked), strict=True)) if asked else ():
            tenant, user, reaction, *found, counts = row
            message, setter = Record(*found[:_WIDTH]), found[_WIDTH:]
            key = tenant, message.room
            place = key, message.seq
            self._records[place] = message
            if place not in self._messages:
                self._messages[place] = MessageReactions(message.room, message.seq, _decode_loaded(counts or "{}"))
            if setter[0] is not None:
                record = Record(*setter)
                self._records[key, record.seq] = record
                self._messages[place].load(Choice(user, reaction), record.seq)

    def decided_by(self, key: Key, draft: Draft) -> Record | None:
        """Return the record that made the reaction as the draft wants it; None if the draft is to be written.

        Raise NoSuchMessage or Refused if the draft is not possible.
        """
        if draft.op not in REACTING or draft.ref is None:
            return None
        state = self._messages.get((key, draft.ref)) or MessageReactions(key[1], draft.ref, None)
        seq = state.decided_by(Choice(draft.user, draft.reaction), on=draft.op == "react")
        return None if seq is None else self._records[key, seq]

    def write(self, key: Key, draft: Draft, record: Record) -> None:
        """Apply a record that was just numbered."""
        state = self._messages.get((key, draft.ref or 0))
        if state is None:
            return
        if draft.op in REACTING:
            self._records[key, record.seq] = record
            state.write(Choice(draft.user, draft.reaction), record.seq, on=draft.op == "react")
        elif draft.op == "delete":
            state.close()

    async def save(self, link: Link) -> None:
        """Write the changes. To be called before the records are written: a trigger on them removes reactions."""
        gone: list[tuple[str, str, int, str, str]] = []
        new: list[tuple[str, str, int, str, str, int]] = []
        for (key, ref), state in self._messages.items():
            removed, added = state.changes()
            gone += [(*key, ref, *choice) for choice in removed]
            new += [(*key, ref, *choice, seq) for choice, seq in added.items()]
        if gone:
            await link.execute(DELETE, *zip(*gone, strict=True))
        if new:
            await link.execute(INSERT, *zip(*new, strict=True))
