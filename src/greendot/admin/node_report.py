"""Reports of this node to cluster queries.

Reports are made at once, from local state. The store's latency is measured only while there are queries, and a report
contains the measurement of the query before, so that no query waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from heapq import nlargest

import msgspec

from greendot import __version__
from greendot.admin import stats
from greendot.admin.history_model import NodeHistory, TenantPlaces, figures
from greendot.admin.stats import NodeSources
from greendot.admin.summary import ClusterSummary, View
from greendot.engine.messages import ClusterAnswer, ClusterQuestion, Topic
from greendot.engine.port import Bus
from greendot.errors import StoreUnavailable
from greendot.node.bus import BusTable
from greendot.node.cluster_rpc import ClusterRpc
from greendot.node.event_recorder_model import ALL, EventFilter, RecordedEvent, TailKey
from greendot.node.session import Session
from greendot.node.subscriptions import TopicSubscription
from greendot.presence.watched_user import WatchedUser
from greendot.protocol.cluster import (
    MOST_DETAILED,
    MOST_SESSIONS,
    Answer,
    DisconnectAll,
    Ended,
    HistoryQuery,
    HistoryReport,
    HotTopic,
    ListenedQuery,
    ListenedReport,
    NodeQuery,
    NodeReport,
    Question,
    RoomQuery,
    RoomReport,
    RoomsQuery,
    RoomsReport,
    Sample,
    SampleQuery,
    SessionReport,
    SessionsQuery,
    SessionsReport,
    SlowClient,
    TopicQuery,
    TopicReport,
    UserQuery,
    UserReport,
    WatchMode,
    encode,
    read_question,
)

MOST_TENANTS = 100  # tenants listed in a report


class NodeReporter:
    """Reporter of one node."""

    def __init__(self, sources: NodeSources, bus: Bus, rpc: ClusterRpc, is_draining: Callable[[], bool]) -> None:
        self._sources = sources
        self._bus = bus
        self._rpc = rpc
        self._is_draining = is_draining
        self._asked_at: float | None = None  # start of the store's ping under way; None: no ping
        self._store_ms: float | None = None  # latency of the last ping; None: the store was unreachable
        self._places = TenantPlaces()
        self._recorded: dict[View, tuple[ClusterSummary, NodeHistory]] = {}  # of this node alone
        self.bus: BusTable = {ClusterQuestion: self._asked, ClusterAnswer: rpc.answered}

    @property
    def name(self) -> str:
        """Return the incarnation of this node."""
        return self._rpc.name()

    async def ask(self, nodes: Collection[str], question: Question, within_s: float) -> dict[str, bytes]:
        """Return the answers by node, including this one, of the nodes that answered in time.

        `nodes` are the live ones.
        """
        here = self.name
        answers = {here: encode(self.reply(question))}
        return answers | await self._rpc.query({*nodes} - {here}, encode(question), within_s)

    async def ask_one(self, node: str, question: Question, within_s: float) -> bytes | None:
        """Return the answer of one node, or None. No other node acts on the question."""
        if node == self.name:
            return encode(self.reply(question))
        return (await self._rpc.query({node}, encode(question), within_s)).get(node)

    def _asked(self, topic: Topic, message: ClusterQuestion) -> None:
        try:
            answer = self.reply(read_question(message.question))
        except msgspec.MsgspecError:
            return  # a question of a newer version is left without an answer
        answered = ClusterAnswer(message.number, topic.name, encode(answer))
        self._bus.publish(Topic("node", "", message.asker), answered)

    def reply(self, question: Question) -> Answer:
        match question:
            case SampleQuery():
                return self._sample(question)
            case UserQuery():
                return self._user(question)
            case SessionsQuery():
                found = self._sources.registry.sessions_of(question.tenant, question.user)
                return SessionsReport([stats.info(self._sources, session) for session in found[:MOST_DETAILED]])
            case RoomQuery():
                return RoomReport(self._listeners(question.tenant, question.room))
            case RoomsQuery():
                return RoomsReport([self._listeners(question.tenant, room) for room in question.rooms])
            case NodeQuery():
                return self._node(question)
            case TopicQuery():
                return self._topic(Topic(question.kind, question.tenant, question.name))
            case HistoryQuery():
                return self._history(question)
            case ListenedQuery():
                return self._listened(question)
            case DisconnectAll():
                return Ended(self._sources.drainer.disconnect_all(question.code, question.reason, question.tenant))

    # --- samples ---

    def _sample(self, question: SampleQuery) -> Sample:
        sources = self._sources
        now = sources.clock.monotonic()
        events: list[RecordedEvent] = []
        skipped = 0
        if question.tail is not None:
            name, only = TailKey(question.asker, question.tail), EventFilter(question.user, question.room)
            events, skipped = sources.recorder.tail.take(name, question.kinds, now, only)
        if question.nodes:
            values = dict(stats.metrics(sources))
            gauges: dict[str, float] = {name: it for name, it in values.items() if not name.endswith("_total")}
            gauges |= self._store_gauges(now)
            closes = sources.registry.closes
        else:
            tally = sources.registry.usage.shown(question.tenant)
            gauges = {"tenant_connections": tally.connections, "tenant_users_online": tally.users}
            values = {
                "tenant_sends_total": tally.sends,
                "tenant_refused_total": tally.refused,
                "tenant_resumed_total": tally.resumed,
            }
            closes = tally.closes
        return Sample(
            at_ms=round(now * 1000),
            gauges=gauges,
            counts={name: int(it) for name, it in values.items() if name.endswith("_total")},
            closes={str(code): count for code, count in closes.items()},
            started_at=sources.started_at,
            level=sources.overload_monitor.level.name.lower(),
            events=[*events],
            skipped=skipped,
            hot=self._hot(question, now),
            slow=self._slow(question),
        )

    def record(self) -> None:
        """Add the current figures of this node and of its tenants to their histories."""
        now_ms, usage = self._sources.clock.now_ms(), self._sources.registry.usage
        tenants = self._places.update(now_ms, {tenant: usage.shown(tenant).connections for tenant in usage})
        views = [View(nodes=True), *(View(nodes=False, tenant=tenant) for tenant in tenants)]
        self._recorded = {view: self._recorded.get(view) or (ClusterSummary(view), NodeHistory()) for view in views}
        for view, (summary, history) in self._recorded.items():
            sample = self._sample(SampleQuery(asker="", nodes=view.nodes, tenant=view.tenant))
            history.add(now_ms, figures(summary.frame([], {self._rpc.name(): sample}, now_ms)))

    def _history(self, question: HistoryQuery) -> HistoryReport:
        view = View(nodes=True) if question.tenant is None else View(nodes=False, tenant=question.tenant)
        found = self._recorded.get(view)
        return HistoryReport() if found is None else found[1].read(self._sources.clock.now_ms())

    def _hot(self, question: SampleQuery, now: float) -> list[HotTopic]:
        """Return the hottest topics. Names belong to tenants, so a query without access to events gets none."""
        if not question.most or question.tail is None:
            return []
        hub = self._sources.hub
        rates = [(it, per_s) for it, per_s in hub.hot(now).items() if question.tail in (ALL, it.tenant)]
        found = []
        for topic, per_s in nlargest(question.most, rates, key=lambda rate: rate[1]):
            channel = hub.find(topic)
            listeners = 0 if channel is None else len(channel.listeners)
            found.append(HotTopic(topic.kind, topic.tenant, topic.name, listeners, round(per_s, 1)))
        return found

    def _slow(self, question: SampleQuery) -> list[SlowClient]:
        if not question.most or question.tail is None:
            return []
        connections = self._sources.registry.connections.values()
        waiting = [(it.unsent, it.session) for it in connections if it.session is not None and it.unsent]
        theirs = [(unsent, it) for unsent, it in waiting if question.tail in (ALL, it.tenant)]
        worst = nlargest(question.most, theirs, key=lambda client: client[0])
        return [SlowClient(it.id, it.tenant, it.user, it.device, unsent) for unsent, it in worst]

    def _store_gauges(self, now: float) -> dict[str, float]:
        """Return the store's latency: of the last ping, or of the ping under way if that is longer."""
        pending_ms = 0.0
        if self._asked_at is None:
            self._asked_at = now
            self._sources.tasks.spawn(self._ask_store())
        else:
            pending_ms = (now - self._asked_at) * 1000
        if self._store_ms is None and not pending_ms:
            return {}
        return {"store_latency_ms": round(max(self._store_ms or 0.0, pending_ms), 2)}

    async def _ask_store(self) -> None:
        clock = self._sources.clock
        begun = clock.monotonic()
        try:
            await self._sources.store.ping()
            self._store_ms = (clock.monotonic() - begun) * 1000
        except StoreUnavailable:
            self._store_ms = None
        finally:
            self._asked_at = None

    # --- users, topics and sessions ---

    def _user(self, question: UserQuery) -> UserReport:
        sessions = self._sources.registry.sessions_of(question.tenant, question.user)
        watched = self._sources.watching.watched(Topic("watch", question.tenant, question.user))
        there = [self._session(session) for session in sessions[:MOST_SESSIONS]]
        if watched is None:
            return UserReport(there)
        return UserReport(there, len(watched.channel.listeners), _watch_mode(watched))

    def _listeners(self, tenant: str, room: str) -> int:
        channel = self._sources.hub.find(Topic("room", tenant, room))
        return 0 if channel is None else len(channel.listeners)

    def _hidden_listeners(self, tenant: str, room: str) -> int:
        """Return the number of a room's listeners on this node that belong to invisible users."""
        channel, statuses = self._sources.hub.find(Topic("room", tenant, room)), self._sources.statuses
        if channel is None:
            return 0
        return sum(len(self._sources.registry.connections_in(channel, user)) for user in statuses.invisible(tenant))

    def _listened(self, question: ListenedQuery) -> ListenedReport:
        rooms: Iterable[str] = question.rooms
        if not question.rooms:
            foreign = (channel.topic for channel in self._sources.hub.foreign)
            rooms = (it.name for it in foreign if it.kind == "room" and it.tenant == question.tenant)
            rooms = [room for room in rooms if room.startswith(question.prefix)]
        found = {room: self._listeners(question.tenant, room) for room in rooms}
        if question.shown_only:
            for room in found:
                found[room] -= self._hidden_listeners(question.tenant, room)
        return ListenedReport({room: count for room, count in found.items() if count})

    def _topic(self, topic: Topic) -> TopicReport:
        if topic.kind == "user":
            return TopicReport(sum(1 for _ in self._sources.registry.connections_of(topic.tenant, topic.name)))
        channel = self._sources.hub.find(topic)
        if channel is None:
            return TopicReport(0)
        watched = self._sources.watching.watched(topic)
        followed: TopicSubscription | None = watched or self._sources.rooms.local(topic)
        timer = None if followed is None else followed.timer
        now = self._sources.timers.now()
        return TopicReport(
            listeners=len(channel.listeners),
            frames=len(channel.pending),
            writes=channel.waiting,
            barred=0 if watched is None else len(watched.barred),
            told="live" if watched is None else _watch_mode(watched),
            stale=watched is not None and watched.stale,
            unheard_in_ms=None if timer is None else max(0, round((timer.due - now) * 1000)),
        )

    def _node(self, question: NodeQuery) -> NodeReport:
        sources = self._sources
        registry, kinds = sources.registry, sources.hub.kinds
        usage = [(registry.usage.shown(tenant).connections, tenant) for tenant in registry.usage]
        return NodeReport(
            version=__version__,
            started_at=sources.started_at,
            draining=self._is_draining(),
            connections=len(registry.connections),
            strangers=len(sources.hello.strangers),
            sessions=len(registry.sessions),
            lingering=sum(session.connection is None for session in registry.sessions.values()),
            users=registry.users,
            tenants={tenant: count for count, tenant in nlargest(MOST_TENANTS, usage) if count},
            theirs=0 if question.tenant is None else registry.usage.shown(question.tenant).connections,
            rooms=kinds.get("room", 0),
            watched=kinds.get("watch", 0),
            timers=len(sources.timers),
            level=sources.overload_monitor.level.name.lower(),
            gauges={name: it for name, it in stats.metrics(sources) if not name.endswith("_total")},
        )

    def _session(self, session: Session) -> SessionReport:
        info = stats.info(self._sources, session)
        connection = session.connection
        return SessionReport(
            session=session.id,
            device=session.device,
            client=f"{session.client.name} {session.client.version}".strip(),
            state=info.state,
            connected_at=session.connected_at,
            last_heard=info.last_heard or 0,
            token_expires_at=session.grants.expires_at,
            token_issued_at=session.grants.issued_at,
            token_id=session.grants.token_id,
            rooms=sorted(session.rooms or ())[:MOST_SESSIONS],
            watches=len(connection.watches or ()) if connection is not None else 0,
            behind=connection is not None and connection.behind,
            waiting=0 if connection is None else connection.unsent,
            ends_in_ms=info.ends_in_ms,
        )


def _watch_mode(watched: WatchedUser) -> WatchMode:
    """Return how changes reach the watchers."""
    if watched.is_polled:
        return "asked"
    return "live" if watched.celebrity is None else "slices"
