"""Who is in one room: users, each by the sessions they have there.

A session counts while its node lives, and for the grace after that. Only a user's first and last session that counts
are news.

Times are integer milliseconds of the engine's clock.
"""

from __future__ import annotations

from collections.abc import Mapping

from greendot.presence.model import NodeLife, SessionEpoch


class Occupants:
    """The occupants of one room."""

    __slots__ = ("_users",)

    def __init__(self) -> None:
        self._users: dict[str, dict[str, str]] = {}  # user → session → the incarnation it is with

    def enter(self, user: str, ref: SessionEpoch, now: int, nodes: Mapping[str, NodeLife]) -> bool:
        """The session is in the room, under this incarnation from now on. Whether its user was not."""
        sessions = self._counting(user, now, nodes)
        was_there = bool(sessions)
        sessions[ref.session] = ref.incarnation
        self._users[user] = sessions
        return not was_there

    def exit(self, user: str, session: str, now: int, nodes: Mapping[str, NodeLife]) -> bool:
        """The session is not in the room. Whether it was, and its user is not any more."""
        sessions = self._counting(user, now, nodes)
        was_there = sessions.pop(session, None) is not None
        if sessions:
            self._users[user] = sessions
        else:
            self._users.pop(user, None)
        return was_there and not sessions

    def users(self, now: int, nodes: Mapping[str, NodeLife]) -> list[str]:
        """Who is there, by user id."""
        live = {node for node, life in nodes.items() if _counts(life, now)}
        return sorted(user for user, sessions in self._users.items() if not live.isdisjoint(sessions.values()))

    def sessions(self, user: str, now: int, nodes: Mapping[str, NodeLife]) -> set[str]:
        """Those of one user."""
        return {*self._counting(user, now, nodes)}

    def nodes(self) -> set[str]:
        """The incarnations their sessions are with, whether these count or not."""
        return {node for sessions in self._users.values() for node in sessions.values()}

    @property
    def empty(self) -> bool:
        return not self._users

    def _counting(self, user: str, now: int, nodes: Mapping[str, NodeLife]) -> dict[str, str]:
        sessions = self._users.get(user, {})
        return {session: node for session, node in sessions.items() if _counts(nodes.get(node), now)}


def _counts(life: NodeLife | None, now: int) -> bool:
    return life is not None and (life.ends is None or life.ends > now)
