"""Viewers of the dashboard, and the sample that is taken for all of them every second.

Without viewers there is no timer, no query to other nodes, and no event kept. Viewers with the same rights and wishes
share one query; each gets the frame made of the answers.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import to_builtins

from greendot import __version__
from greendot.admin import frames
from greendot.admin.access import DashboardServices, KeyRefused, Viewer, viewer_of
from greendot.admin.actions import Actions
from greendot.admin.history_model import EVERY_S as HISTORY_S
from greendot.admin.history_model import ClusterHistory, next_point_s
from greendot.admin.listing import Listing
from greendot.admin.lookup import Lookup
from greendot.admin.socket import ViewerAdmission
from greendot.admin.summary import ClusterSummary, View, busiest
from greendot.engine.messages import Topic
from greendot.engine.results import NodeInfo
from greendot.errors import EngineUnavailable, Refused, StoreUnavailable, Unstorable
from greendot.node.event_recorder_model import KINDS, EventKind
from greendot.protocol.cluster import HistoryQuery, Sample, SampleQuery, read_history, read_sample
from greendot.protocol.codes import Close, Err
from greendot.protocol.commands import CommandId
from greendot.telemetry import log_events
from greendot.telemetry.log import log

EVERY_S = 1.0  # time between two samples
WITHIN_S = 0.6  # time for other nodes to answer
HISTORY_WITHIN_S = 2.0  # time for other nodes to send their history
NODES_EVERY = 5  # samples between two reads of the list of nodes
KEY_EVERY = 10  # samples between two checks of a key
HELLO_S = 10.0
WRONG_S = 1.0  # delay of the answer to a wrong key
MOST_COMMANDS = 8  # commands of one viewer under way
MOST_SHOWN_TENANTS = 200


class Socket(Protocol):
    """Socket of a viewer."""

    @property
    def is_behind(self) -> bool: ...
    def send(self, payload: bytes) -> None: ...
    def close(self, code: int, reason: str = "") -> None: ...
    def abort(self) -> None: ...


class Group(NamedTuple):
    """Viewers with the same rights and the same choice of events. They share one query."""

    view: View
    tail: str | None  # tenant whose events are shown; None: no events
    user: str | None = None  # events of this user only
    room: str | None = None
    node: str | None = None


class _SocketView:
    """State of one viewer."""

    def __init__(self, acting: Actions) -> None:
        self.acting = acting
        self.asked = False  # hello was received
        self.key = ""
        self.viewer: Viewer | None = None  # set when the key is accepted
        self.kinds: frozenset[EventKind] = frozenset()
        self.wants: frames.SetTail | None = None  # filter of the events; None: all
        self.most = 0  # hot topics and slow clients in a sample
        self.missed = 0  # events that could not be sent
        self.commands = 0  # commands under way
        self.rejected = 0  # frames answered with an error at once
        self.behind = 0  # consecutive samples that could not be sent
        self.deadline: Any = None


class Dashboard:
    """Dashboard of one node (`admin.socket.SocketListener`)."""

    def __init__(self, services: DashboardServices) -> None:
        self._services = services
        self._views: dict[Socket, _SocketView] = {}
        self._admission: ViewerAdmission[Socket] = ViewerAdmission()
        self._finding = Lookup(services)
        self._listing = Listing(services)
        self._gathered: dict[Group, ClusterSummary] = {}
        self._nodes: list[NodeInfo] = []
        self._jobs: list[dict[str, Any]] = []
        self._turn = 0
        self._timer: Any = None
        self._recording: Any = None  # timer of the history

    def start(self) -> None:
        """Begin to keep the history of this node."""
        self._recording = self._services.timers.set(next_point_s(self._services.clock.now_ms()), self._record)

    def _record(self, _: object) -> None:
        self.start()
        self._services.cluster.record()

    @property
    def viewers(self) -> int:
        return len(self._views)

    # --- sockets ---

    def opened(self, socket: Socket) -> None:
        if (displaced := self._admission.open(socket)) is not None:
            self._refuse(displaced, Close.OVERLOADED, "too many sockets wait to sign in; reconnect later")
        look = self._views[socket] = _SocketView(Actions(self._services))
        look.deadline = self._services.timers.set(HELLO_S, self._too_late, socket)

    def gone(self, socket: Socket) -> None:
        self._admission.remove(socket)
        look = self._views.pop(socket, None)
        if look is not None:
            self._services.timers.cancel(look.deadline)
        if not self._views:
            self._services.timers.cancel(self._timer)
            self._timer = None
            self._gathered.clear()

    def message_received(self, socket: Socket, text: str) -> None:
        look = self._views.get(socket)
        if look is None:
            return
        try:
            command = frames.decode(text)
        except msgspec.DecodeError as error:
            self._reject(socket, look, None, Err.BAD_FIELD, str(error))
            return
        if isinstance(command, frames.Hello) == look.asked:
            self._refuse(socket, Close.PROTOCOL_ERROR, "hello must be the first frame, and only the first")
        elif isinstance(command, frames.Hello):
            look.asked = True
            self._admission.key_sent(socket)
            self._services.tasks.spawn(self._hello(socket, look, command))
        elif look.viewer is None or look.commands >= MOST_COMMANDS:
            self._reject(
                socket, look, command.id, Err.RATE_LIMITED, "too many commands are pending; wait for their replies"
            )
        else:
            look.commands += 1
            self._services.tasks.spawn(self._answer(socket, look, command))

    def _reject(self, socket: Socket, look: _SocketView, id: CommandId | None, code: str, message: str) -> None:
        """Answer a frame with an error. Before the welcome only a few frames are answered, before hello only one."""
        socket.send(frames.error(id, code, message))
        look.rejected += 1
        if look.viewer is None and look.rejected > (MOST_COMMANDS if look.asked else 0):
            self._refuse(
                socket, Close.PROTOCOL_ERROR, "send hello first, and wait for the welcome before the next frame"
            )

    def close(self) -> None:
        """Close all viewers, because the server stops."""
        self._services.timers.cancel(self._recording)
        for socket in [*self._views]:
            socket.close(Close.DRAINING, "this node is stopping; reconnect")
            self.gone(socket)

    def _too_late(self, socket: Socket) -> None:
        if self._views[socket].asked:
            self._refuse(socket, Close.OVERLOADED, "the store does not answer; reconnect later")
        else:
            self._refuse(socket, Close.PROTOCOL_ERROR, "no hello within 10 s; send hello first")

    def _wrong_key(self, refused: tuple[Socket, KeyRefused]) -> None:
        self._refuse(refused[0], Close.BAD_TOKEN, refused[1].reason)

    def _refuse(self, socket: Socket, code: int, reason: str) -> None:
        """Close a socket and free its place at once: a peer that does not read must not keep it."""
        self._services.metrics.dashboard_refused_total += 1
        socket.close(code, reason)
        self.gone(socket)

    # --- hello ---

    async def _hello(self, socket: Socket, look: _SocketView, hello: frames.Hello) -> None:
        try:
            viewer = await viewer_of(self._services, hello.key)
            tenants = await self._tenants(viewer)
        except StoreUnavailable:
            if socket in self._views:
                self._refuse(socket, Close.OVERLOADED, "the store does not answer; reconnect later")
            return
        if socket not in self._views:
            return
        self._services.timers.cancel(look.deadline)
        if isinstance(viewer, KeyRefused):
            # Each guess is delayed, and the number of waiting sockets is bounded.
            look.deadline = self._services.timers.set(WRONG_S, self._wrong_key, (socket, viewer))
            return
        if (full := self._admission.admit(socket, viewer)) is not None:
            self._refuse(socket, Close.OVERLOADED, full)
            return
        look.key, look.viewer = hello.key, viewer
        log(log_events.DASHBOARD_OPENED, key=viewer.name)
        welcome = {
            "version": __version__,
            "node": self._services.node.incarnation,
            "key": viewer.name,
            "nodes": viewer.nodes,
            "tenant": viewer.tenant,
            "every": viewer.every,
            "tenants": tenants,
            "kinds": KINDS if viewer.tail is not None else (),
            "bodies": self._services.dev,
            "every_ms": round(EVERY_S * 1000),
        }
        socket.send(frames.event("welcome", welcome, self._services.clock.now_ms()))
        if self._timer is None:
            self._turn = 0
            self._timer = self._services.timers.set(0.0, self._on_timer)

    async def _tenants(self, viewer: Viewer | KeyRefused) -> list[str]:
        if isinstance(viewer, KeyRefused) or not viewer.every:
            return [] if isinstance(viewer, KeyRefused) or viewer.tenant is None else [viewer.tenant]
        registered = await self._services.store.tenants(None, MOST_SHOWN_TENANTS)
        return sorted({"default", *(it.tenant for it in registered)})

    async def _still_counts(self, socket: Socket, look: _SocketView) -> bool:
        """Check the viewer's key again; close the socket and return False if it is no longer valid.

        While the store is away, the key stays valid.
        """
        try:
            viewer = await viewer_of(self._services, look.key)
        except StoreUnavailable:
            return True
        if viewer != look.viewer:
            socket.close(Close.REVOKED, "this key no longer opens the dashboard; use another key")
            return False
        return True

    # --- commands ---

    async def _answer(self, socket: Socket, look: _SocketView, command: frames.Command) -> None:
        try:
            data = await self._data(socket, look, command)
            if data is not None:
                socket.send(frames.reply(command.id, data))
        except Refused as error:
            socket.send(frames.error(command.id, error.code, error.message))
        except (EngineUnavailable, StoreUnavailable) as error:
            socket.send(frames.error(command.id, Err.UNAVAILABLE, f"{error}; retry later"))
        except Unstorable as error:
            socket.send(frames.error(command.id, Err.BAD_FIELD, str(error)))
        finally:
            look.commands -= 1

    async def _data(self, socket: Socket, look: _SocketView, command: frames.Command) -> dict[str, Any] | None:
        viewer = look.viewer
        assert viewer is not None
        match command:
            case frames.SetTail():
                if viewer.tail is None:
                    raise Refused(Err.FORBIDDEN, "this key is for nodes only; use a tenant's key to see events")
                if command.tenant is not None:
                    viewer.at(command.tenant)
                look.kinds, look.wants, look.missed = frozenset(command.kinds), command, 0
                return {"kinds": sorted(look.kinds)}
            case frames.SetTop():
                look.most = command.most
                return {"most": look.most}
            case frames.FindUser():
                return await self._finding.user(viewer.at(command.tenant), command.user, await self._seen())
            case frames.FindRoom():
                return await self._finding.room(viewer.at(command.tenant), command.room, await self._seen())
            case frames.FindNode():
                return await self._finding.node(viewer, command.node, await self._seen())
            case frames.FindTopic():
                topic = Topic(command.kind, viewer.at(command.tenant), command.name)
                return await self._finding.topic(topic, await self._seen())
            case frames.ReadHistory():
                return await self._history(viewer)
            case frames.ListUsers():
                return await self._listing.users(viewer.at(command.tenant), command.prefix, command.after)
            case frames.ListRooms():
                tenant = viewer.at(command.tenant)
                await self._seen()
                return await self._listing.rooms(tenant, command.prefix, command.after, self._live())
            case frames.ListAudit():
                return await self._listing.audit(viewer.at(command.tenant), command.room, command.after)
            case frames.Act():
                return await look.acting.offer(viewer, command, await self._seen())
            case frames.Confirm():
                if not await self._still_counts(socket, look):
                    return None
                return await look.acting.confirm(viewer, command.number)
        return None

    async def _history(self, viewer: Viewer) -> dict[str, Any]:
        """Return the history of all nodes, or of the viewer's tenant on them."""
        question = HistoryQuery(None if viewer.nodes else viewer.at(None))
        await self._seen()
        answers = await self._services.cluster.ask(self._live(), question, HISTORY_WITHIN_S)
        reports = [it for text in answers.values() if (it := read_history(text)).every_ms == round(HISTORY_S * 1000)]
        merged = ClusterHistory(reports)
        for report in reports:
            merged.add(report)
            await asyncio.sleep(0)  # the points of a node take some milliseconds
        return merged.shown()

    async def _seen(self) -> list[NodeInfo]:
        """Return the nodes as they are now: a single command must not be answered with an old list."""
        try:
            self._nodes = await self._services.engine.nodes()
        except EngineUnavailable:
            pass  # use the last known nodes, as for samples
        return self._nodes

    def _live(self) -> list[str]:
        return [info.node for info in self._nodes if info.state == "live"]

    # --- samples ---

    def _on_timer(self, _: object) -> None:
        self._timer = self._services.timers.set(EVERY_S, self._on_timer)
        self._services.tasks.spawn(self._refresh())

    async def _refresh(self) -> None:
        turn, self._turn = self._turn, self._turn + 1
        if turn % NODES_EVERY == 0:
            try:
                self._nodes = await self._services.engine.nodes()
            except EngineUnavailable:
                pass  # use the last known nodes; unreachable ones do not answer
        looks = {socket: look for socket, look in self._views.items() if look.viewer is not None}
        if turn % NODES_EVERY == 0 and any(look.viewer is not None and look.viewer.nodes for look in looks.values()):
            await self._refresh_jobs()
        if turn % KEY_EVERY == KEY_EVERY - 1:
            for socket, look in [*looks.items()]:
                if not await self._still_counts(socket, look):
                    del looks[socket]
        groups: dict[Group, list[Socket]] = {}
        for socket, look in looks.items():
            assert look.viewer is not None
            groups.setdefault(_group(look.viewer, look.wants), []).append(socket)
        self._gathered = {group: self._gathered.get(group) or ClusterSummary(group.view) for group in groups}
        await asyncio.gather(*(self._show(group, sockets) for group, sockets in groups.items()))

    async def _refresh_jobs(self) -> None:
        """Read the jobs, which are the same for the whole cluster."""
        store = self._services.store
        try:
            states = await store.jobs()
            last = [await store.job_runs(state.name, 1) for state in states]
        except StoreUnavailable:
            return
        self._jobs = [
            {
                "name": state.name,
                "schedule": state.schedule,
                "next_at": state.next_at,
                "failures": state.failures,
                "run": to_builtins(runs[0]) if runs else None,
            }
            for state, runs in zip(states, last, strict=True)
        ]

    def _question(self, group: Group, sockets: list[Socket]) -> SampleQuery:
        looks = [self._views[socket] for socket in sockets if socket in self._views]
        kinds = frozenset[str]().union(*(look.kinds for look in looks))
        # Viewers with and without access to nodes have different queues, even for the same tenant.
        names = "nodes" if group.view.nodes else "tenant", group.user or "", group.room or "", group.node or ""
        return SampleQuery(
            asker="/".join((self._services.node.incarnation, *names)).rstrip("/"),
            nodes=group.view.nodes,
            tenant=group.view.tenant,
            tail=group.tail,
            kinds=tuple(sorted(kinds)),
            user=group.user,
            room=group.room,
            most=max((look.most for look in looks), default=0),
        )

    async def _show(self, group: Group, sockets: list[Socket]) -> None:
        question = self._question(group, sockets)
        answers = await self._services.cluster.ask(self._live(), question, WITHIN_S)
        samples = {node: read_sample(text) for node, text in answers.items()}
        now = self._services.clock.now_ms()
        gathering = self._gathered.get(group) or ClusterSummary(group.view)
        shown = gathering.frame(self._nodes, samples, now)
        if group.view.nodes:
            shown["jobs"] = self._jobs
        if question.most:
            shown |= busiest(samples, question.most)
        frame = frames.event("sample", shown, now)
        told = {node: sample for node, sample in samples.items() if group.node in (None, node)}
        for socket in sockets:
            look = self._views.get(socket)
            if look is None:
                continue
            if socket.is_behind:
                look.behind += 1
                events, skipped = _wanted(look, told)
                look.missed += len(events) + skipped
                if look.behind >= KEY_EVERY:
                    socket.abort()
                continue
            look.behind = 0
            socket.send(frame)
            self._show_tail(socket, look, told)

    def _show_tail(self, socket: Socket, look: _SocketView, samples: dict[str, Sample]) -> None:
        events, skipped = _wanted(look, samples)
        skipped, look.missed = skipped + look.missed, 0
        if events or skipped:
            events.sort(key=lambda event: event["at"])
            socket.send(frames.event("tail", {"events": events, "skipped": skipped}, self._services.clock.now_ms()))


def _wanted(look: _SocketView, samples: dict[str, Sample]) -> tuple[list[dict[str, Any]], int]:
    """Return the viewer's events, and the number of events that were dropped."""
    if not look.kinds:
        return [], 0
    events = [
        event | {"node": node}
        for node, sample in samples.items()
        for event in sample.events
        if event["kind"] in look.kinds
    ]
    return events, sum(sample.skipped for sample in samples.values())


def _group(viewer: Viewer, wants: frames.SetTail | None) -> Group:
    view = View(nodes=True) if viewer.nodes else View(nodes=False, tenant=viewer.tenant or "")
    if wants is None:
        return Group(view, viewer.tail)
    return Group(view, wants.tenant or viewer.tail, wants.user, wants.room, wants.node)
