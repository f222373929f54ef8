"""Backpressure for apps that publish by HTTP, while nodes of the recipients are overloaded.

All nodes know each other's overload level. While none is overloaded, checks cost nothing. Otherwise the nodes with
sessions of a room or user are read from the engine, and cached for a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from math import inf

from greendot.engine.port import Engine
from greendot.errors import EngineUnavailable, Refused
from greendot.limits.overload import OverloadMonitor

REMEMBER_S = 1.0
MOST = 10_000  # rooms and users in the cache
AT_ONCE = 250  # users read together

Place = tuple[str, str, str]  # kind, tenant, name


class Backpressure:
    """Checks for publishers, on one node."""

    def __init__(self, engine: Engine, overload_monitor: OverloadMonitor, now: Callable[[], float]) -> None:
        self._engine = engine
        self._overload_monitor = overload_monitor
        self._now = now
        self._known: dict[Place, tuple[float, frozenset[str]]] = {}  # end of validity, and the nodes

    async def check_room(self, tenant: str, room: str) -> None:
        """Raise Refused while this node, or a node with sessions in the room, refuses new work."""
        self._overload_monitor.check()
        if self._engine.refusing():
            await self._check(("room", tenant, room), lambda: self._engine.room_nodes(tenant, room))

    async def check_users(self, tenant: str, users: Iterable[str]) -> None:
        """Raise Refused while this node, or a node with sessions of any of the users, refuses new work."""
        self._overload_monitor.check()
        if self._engine.refusing():
            wanted = [*dict.fromkeys(users)]
            for at in range(0, len(wanted), AT_ONCE):
                await asyncio.gather(*(self._check_user(tenant, user) for user in wanted[at : at + AT_ONCE]))

    async def _check_user(self, tenant: str, user: str) -> None:
        await self._check(("user", tenant, user), lambda: self._user_nodes(tenant, user))

    async def _user_nodes(self, tenant: str, user: str) -> set[str]:
        return {entry.node for entry in await self._engine.sessions(tenant, user)}

    async def _check(self, place: Place, look_up: Callable[[], Awaitable[set[str]]]) -> None:
        until, nodes = self._known.get(place, (-inf, frozenset[str]()))
        if until < self._now():
            try:
                nodes = frozenset(await look_up())
            except EngineUnavailable:
                return  # the nodes are unknown: the request passes
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[place] = self._now() + REMEMBER_S, nodes
        if nodes & self._engine.refusing():
            raise self._refusal()

    def _refusal(self) -> Refused:
        return self._overload_monitor.refusal("recipient nodes are overloaded; retry after the given delay")
