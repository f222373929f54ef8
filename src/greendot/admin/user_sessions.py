"""Sessions of a user on all nodes, with the details that only the node of a session knows.

The engine's list decides which sessions there are. It is one read, so a session that moves to another node is in it
once. The nodes of these sessions are asked for the details.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import UNSET

from greendot.admin.node_report import NodeReporter
from greendot.engine.port import Engine
from greendot.engine.results import EngineSession
from greendot.errors import EngineUnavailable
from greendot.protocol.cluster import SessionsQuery, read_sessions
from greendot.protocol.replies import SessionInfo, SessionsReply

WITHIN_S = 1.0  # time for the nodes to answer
ROUNDS = 3  # rounds of questions while sessions move from node to node

Details = dict[str, SessionInfo]  # by session
Ends = Mapping[str, int]  # dead node → milliseconds until its sessions end


class UserSessions:
    """Reader of the sessions of users, on one node."""

    def __init__(self, engine: Engine, cluster: NodeReporter) -> None:
        self._engine = engine
        self._cluster = cluster

    async def of(self, tenant: str, user: str) -> SessionsReply:
        """Return the sessions of a user. Name the nodes whose details are missing.

        While the engine is away or restores lost records, the reply is `stale`: sessions may be missing.
        """
        question = SessionsQuery(tenant, user)
        try:
            return await self._read(question)
        except EngineUnavailable:
            here, _ = await self._asked((), question)
            others = {*self._engine.live_nodes()} - {self._cluster.name}
            return SessionsReply([*here.values()], sorted(others), stale=True)

    async def _read(self, question: SessionsQuery) -> SessionsReply:
        details: Details = {}
        silent = set[str]()
        ends: Ends = {}
        stale = False
        for _ in range(ROUNDS):
            entries = await self._engine.sessions(question.tenant, question.user)
            stale = stale or self._engine.is_restoring(question.tenant, question.user)
            nodes = {entry.node for entry in entries if not _is_known(entry, details)}
            live, ends = await self._states(nodes)
            wanted = (live | {*self._engine.live_nodes()} if stale else live) - silent
            if not wanted:
                break
            found, quiet = await self._asked(wanted, question)
            details |= found
            silent |= quiet
            if wanted == {self._cluster.name} or stale:
                break  # no wait between the engine's list and our own sessions, or a list that misses sessions anyway
        sessions = [_session(question.user, entry, details, ends) for entry in entries]
        listed = {entry.session for entry in entries}
        if stale:
            sessions += [info for info in details.values() if info.session not in listed]
        unknown = {entry.node for entry in entries if not _is_known(entry, details)}
        return SessionsReply(sessions, sorted(unknown | silent), stale=stale or UNSET)

    async def _asked(self, nodes: Iterable[str], question: SessionsQuery) -> tuple[Details, set[str]]:
        """Return the details of the sessions on these nodes and on our own, and the nodes that did not answer."""
        nodes = {*nodes}
        answers = await self._cluster.ask(nodes, question, WITHIN_S)
        found = (info for answer in answers.values() for info in read_sessions(answer).sessions)
        return {info.session: info for info in found}, nodes - answers.keys()

    async def _states(self, nodes: set[str]) -> tuple[set[str], Ends]:
        """Return which of these nodes live, and when the sessions of the others end."""
        live = nodes.intersection(self._engine.live_nodes())
        if live == nodes:
            return live, {}
        now = self._engine.now_ms()
        known = [info for info in await self._engine.nodes() if info.node in nodes]  # a node may have started just now
        ends = {info.node: max(0, info.ends_at - now) for info in known if info.ends_at is not None}
        return live | {info.node for info in known if info.state == "live"}, ends


def _is_known(entry: EngineSession, details: Details) -> bool:
    """Return whether the node that has the session, by the engine's list, has reported the details."""
    found = details.get(entry.session)
    return found is not None and found.node == entry.node


def _session(user: str, entry: EngineSession, details: Details, ends: Ends) -> SessionInfo:
    if _is_known(entry, details):
        return details[entry.session]
    ends_in_ms = min((ms for ms in (entry.ends_in_ms, ends.get(entry.node)) if ms is not None), default=None)
    return SessionInfo(
        session=entry.session,
        user=user,
        device=entry.device,
        client=None,
        node=entry.node,
        connected_at=None,
        last_heard=None,
        state=entry.state if ends_in_ms is None else "lingering",
        ip_hash=None,
        agent_hash=None,
        ends_in_ms=ends_in_ms,
    )
