"""Set semantics of reactions: a user has a reaction to a message, or not, however often it is set or removed.

A record is written only if it changes whether the user has the reaction. All writes of a room run one after the other,
so two nodes cannot both write a record that sets the same reaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from greendot.errors import NoSuchMessage, Refused
from greendot.protocol.codes import Err

MOST = 20  # different reactions to one message
MARK = ""  # entry in the counts that is not a reaction: with the count GONE, it marks a deleted message
GONE = -1
REACTING = ("react", "unreact")  # operations of records: set a reaction, remove it


class Choice(NamedTuple):
    """Reaction of one user."""

    user: str
    reaction: str


class MessageReactions:
    """Reactions to one message, as far as the writes of one transaction need them."""

    __slots__ = ("_before", "_counts", "_is_open", "_now", "_ref", "_room")

    def __init__(self, room: str, ref: int, counts: Mapping[str, int] | None) -> None:
        """`counts`: the number of users with each reaction; None if there is no such message."""
        self._room = room
        self._ref = ref
        self._counts = dict(counts or {})
        self._is_open = counts is not None and self._counts.pop(MARK, 0) != GONE
        self._before: dict[Choice, int] = {}  # reactions in the store: the number of the record that set each
        self._now: dict[Choice, int] = {}

    def load(self, choice: Choice, seq: int) -> None:
        """Add a reaction that the store has, set by the record `seq`."""
        self._before[choice] = self._now[choice] = seq

    def decided_by(self, choice: Choice, *, on: bool) -> int | None:
        """Return the number of the record that made the reaction as wanted; None if a record has to be written.

        To remove a reaction that is not set, this is the number of the message. Raise NoSuchMessage if there
        is no message to react to, and Refused if the message has too many different reactions.
        """
        if not self._is_open:
            raise NoSuchMessage(self._room)
        if on and choice in self._now:
            return self._now[choice]
        if not on:
            return None if choice in self._now else self._ref
        if choice.reaction not in self._counts and len(self._counts) >= MOST:
            raise Refused(
                Err.TOO_MANY, f"message {self._ref} has {MOST} different reactions already; use one of these reactions"
            )
        return None

    def write(self, choice: Choice, seq: int, *, on: bool) -> None:
        """Apply the record `seq`, which sets or removes a reaction."""
        count = self._counts.pop(choice.reaction, 0) + (1 if on else -1)
        if count:
            self._counts[choice.reaction] = count
        if on:
            self._now[choice] = seq
        else:
            del self._now[choice]

    def close(self) -> None:
        """Remove all reactions: the message is deleted."""
        self._is_open = False
        self._now = {}

    def changes(self) -> tuple[list[Choice], dict[Choice, int]]:
        """Return the reactions to remove from the store, and then those to add, each with the number of its record."""
        gone = [choice for choice, seq in self._before.items() if self._now.get(choice) != seq]
        new = {choice: seq for choice, seq in self._now.items() if self._before.get(choice) != seq}
        return gone, new
