"""Reactions to messages, as pages of messages contain them.

`MessageStore.append` writes a reaction, and `SnapshotStore.room_page` reads the counts together with the messages.
"""

from __future__ import annotations

from typing import NamedTuple


class ReactionCount(NamedTuple):
    """Number of users with one reaction to a message."""

    reaction: str
    users: int
    mine: bool  # whether the reader of the page is one of them
