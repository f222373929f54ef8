"""Occupants of one room: users, each with their sessions in the room.

A session counts while its node lives, and for the grace after that. A user enters with the first session that counts
and leaves with the last one.

Times are integer milliseconds of the engine's clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping

from greendot.presence.model import NodeLife, SessionEpoch


class Occupants:
    """Occupants of one room, by user."""

    __slots__ = ("_order", "_users")

    def __init__(self) -> None:
        self._order: list[str] = []  # the keys of `_users`, sorted
        self._users: dict[str, dict[str, str]] = {}  # user → session → incarnation of the session's node

    def enter(self, user: str, ref: SessionEpoch, now: int, nodes: Mapping[str, NodeLife]) -> bool:
        """Add a session, or move it to the incarnation of `ref`; return whether the user has entered with it."""
        sessions = self._counting(user, now, nodes)
        was_there = bool(sessions)
        sessions[ref.session] = ref.incarnation
        if user not in self._users:
            insort(self._order, user)
        self._users[user] = sessions
        return not was_there

    def exit(self, user: str, session: str, now: int, nodes: Mapping[str, NodeLife]) -> bool:
        """Remove a session; return whether the user has left with it."""
        sessions = self._counting(user, now, nodes)
        was_there = sessions.pop(session, None) is not None
        if sessions:
            self._users[user] = sessions
        elif self._users.pop(user, None) is not None:
            del self._order[bisect_left(self._order, user)]
        return was_there and not sessions

    def users(self, now: int, nodes: Mapping[str, NodeLife]) -> list[str]:
        """Return the occupants, sorted by user id."""
        live = {node for node, life in nodes.items() if _counts(life, now)}
        return [user for user in self._order if not live.isdisjoint(self._users[user].values())]

    def page(self, after: str | None, limit: int, now: int, nodes: Mapping[str, NodeLife]) -> tuple[list[str], int]:
        """Return up to `limit` occupants after a user id, and the number of all.

        While all nodes count, the cost does not depend on the number of occupants.
        """
        there = self._order if all(_counts(life, now) for life in nodes.values()) else self.users(now, nodes)
        first = 0 if after is None else bisect_right(there, after)
        return there[first : first + limit], len(there)

    def sessions(self, user: str, now: int, nodes: Mapping[str, NodeLife]) -> set[str]:
        """Return the sessions of one user that count."""
        return {*self._counting(user, now, nodes)}

    def nodes(self) -> set[str]:
        """Return the incarnations of all sessions, including those that no longer count."""
        return {node for sessions in self._users.values() for node in sessions.values()}

    @property
    def empty(self) -> bool:
        return not self._users

    def _counting(self, user: str, now: int, nodes: Mapping[str, NodeLife]) -> dict[str, str]:
        sessions = self._users.get(user, {})
        return {session: node for session, node in sessions.items() if _counts(nodes.get(node), now)}


def _counts(life: NodeLife | None, now: int) -> bool:
    return life is not None and (life.ends is None or life.ends > now)
