"""Decision about a change of a user whose lost sessions are being restored.

The engine computes a change from the sessions that it has. After a loss, other sessions of the user may be missing
there, so the change is compared with the sessions that the nodes have.
"""

from __future__ import annotations

from enum import IntEnum

from greendot.presence.model import Change
from greendot.protocol.events import State


class Seen(IntEnum):
    """Activity that the sessions of a user on one node show. For several nodes, the maximum counts."""

    NOTHING = 0
    IDLE = 1
    ACTIVE = 2
    # A node has sessions of the user, and knows the user as invisible: it confirms no state. For nodes of versions that
    # do not know this value, the sessions are active.
    HIDDEN = 3


def is_certain(change: Change) -> bool:
    """Return whether a change is correct whichever sessions are missing: the user has become invisible."""
    return change.own.status == "invisible"


def is_confirmed(state: State, seen: Seen, *, complete: bool) -> bool:
    """Return whether the sessions of the nodes confirm a state. `complete` is False if a node did not answer."""
    match state:
        case "online":
            return seen is Seen.ACTIVE
        case "busy":
            return seen in (Seen.IDLE, Seen.ACTIVE)
        case "idle":
            return complete and seen is Seen.IDLE
        case "offline":
            return complete and seen is Seen.NOTHING


def is_possible(state: State, seen: Seen) -> bool:
    """Return whether further answers may still confirm a state. They can only show more activity than `seen`."""
    return any(is_confirmed(state, more, complete=True) for more in Seen if more >= seen)
