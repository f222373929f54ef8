"""Reactions to messages, in SQLite. Triggers keep their counts."""

from __future__ import annotations

import sqlite3

from greendot.ids import Key
from greendot.rooms.reactions_model import MARK, Choice, MessageReactions
from greendot.store.reactions import ReactionCount
from greendot.store.rooms import Draft

_MESSAGE = "SELECT 1 FROM messages WHERE tenant = ? AND room = ? AND seq = ? AND op IS NULL"
_COUNTS = "SELECT reaction, count FROM reaction_counts WHERE tenant = ? AND room = ? AND ref = ?"
_THIS = "tenant = ? AND room = ? AND ref = ? AND user = ? AND reaction = ?"
PAGE = """
    SELECT c.ref, c.first, c.reaction, c.count, EXISTS (
        SELECT 1 FROM reactions r
        WHERE r.tenant = c.tenant AND r.room = c.room AND r.ref = c.ref AND r.user = ?5 AND r.reaction = c.reaction
    )
    FROM reaction_counts c
    WHERE c.tenant = ?1 AND c.room = ?2 AND c.ref BETWEEN ?3 AND ?4 AND c.count >= 0
"""


def decided_by(db: sqlite3.Connection, key: Key, draft: Draft) -> int | None:
    """Return the number of the record that made the reaction as the draft wants it; None if the draft is to be written.

    Raise NoSuchMessage or Refused if the draft is not possible.
    """
    assert draft.ref is not None
    exists = db.execute(_MESSAGE, (*key, draft.ref)).fetchone() is not None
    state = MessageReactions(key[1], draft.ref, dict(db.execute(_COUNTS, (*key, draft.ref))) if exists else None)
    choice = Choice(draft.user, draft.reaction)
    found = db.execute(f"SELECT seq FROM reactions WHERE {_THIS}", (*key, draft.ref, *choice)).fetchone()
    if found is not None:
        state.load(choice, found[0])
    return state.decided_by(choice, on=draft.op == "react")


def write(db: sqlite3.Connection, key: Key, draft: Draft, seq: int) -> None:
    """Set or remove the reaction of a draft whose record has the number `seq`."""
    this = (*key, draft.ref, draft.user, draft.reaction)
    if draft.op == "react":
        db.execute(
            "INSERT INTO reactions (tenant, room, ref, user, reaction, seq) VALUES (?, ?, ?, ?, ?, ?)", (*this, seq)
        )
    else:
        db.execute(f"DELETE FROM reactions WHERE {_THIS}", this)


def read_counts(
    db: sqlite3.Connection, key: Key, first: int, last: int, reader: str | None
) -> dict[int, list[ReactionCount]]:
    """Return the counted reactions to the messages with these numbers, by message; empty if all were removed."""
    found: dict[int, list[ReactionCount]] = {}
    for ref, _, reaction, count, mine in sorted(db.execute(PAGE, (*key, first, last, reader))):
        of = found.setdefault(ref, [])
        if reaction != MARK:
            of.append(ReactionCount(reaction, count, bool(mine)))
    return found
