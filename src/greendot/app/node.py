"""Node: the services of one process, made from the settings and connected."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from secrets import token_bytes
from typing import Any, get_args

from greendot import __version__
from greendot.admin import stats
from greendot.admin.metrics import MetricsPage
from greendot.admin.node_report import NodeReporter
from greendot.admin.stats import Counters, NodeSources
from greendot.admin.user_sessions import UserSessions
from greendot.app import node_settings
from greendot.app.tokens import make_tokens
from greendot.auth.jwks_refresh import JwksRefresh
from greendot.auth.revocation import RevocationService
from greendot.auth.tenants import Tenants
from greendot.clock import Clock
from greendot.compat.connection import NodeServices
from greendot.config import Settings
from greendot.connect.admission_model import HelloQueue
from greendot.connect.commands import ConnectionCommands
from greendot.connect.connections import ClientConnections, ConnectionOptions
from greendot.connect.disconnect import DisconnectCleanup
from greendot.connect.dispatch import Dispatcher
from greendot.connect.drain import Drainer, DrainPace
from greendot.connect.event_streams import EventStreams
from greendot.connect.hello import HelloService
from greendot.connect.recovery import Recovery, RecoveryPace, RecoveryServices
from greendot.engine.messages import Acknowledged, Deliver, Message, Part, Topic
from greendot.engine.port import Engine, Transition
from greendot.ids import Key, hash_key
from greendot.inbox.delivery import InboxDelivery
from greendot.inbox.service import InboxService
from greendot.limits.cluster_limits import ClusterLimits
from greendot.limits.connection_limits import ConnectionLimits
from greendot.limits.overload import OverloadMonitor
from greendot.limits.overload_model import Load, OverloadBounds, OverloadLevels
from greendot.limits.publisher_backpressure import Backpressure
from greendot.limits.rate_limits import RateLimits
from greendot.node.bus import BusDispatcher
from greendot.node.cluster_rpc import ClusterRpc
from greendot.node.commands import CommandTable, merge_commands
from greendot.node.context import NodeContext
from greendot.node.event_recorder import EventRecorder
from greendot.node.event_recorder_model import EventTail
from greendot.node.hub import Hub
from greendot.node.registry import Registry
from greendot.node.session import Connection
from greendot.node.surge_detector import SurgeDetector
from greendot.node.tasks import Tasks
from greendot.node.timers import Timers
from greendot.presence.celebrities import Celebrities
from greendot.presence.celebrity_model import CelebrityThresholds
from greendot.presence.commands import PresenceCommands
from greendot.presence.held_changes import HeldChanges
from greendot.presence.last_seen import LastSeenReader, LastSeenWriter
from greendot.presence.mode_model import ModeTable
from greendot.presence.model import Change
from greendot.presence.modes import PresenceModes
from greendot.presence.profiles import ProfileService
from greendot.presence.sessions import SessionService
from greendot.presence.status import StatusService
from greendot.presence.watch import WatchLimits, WatchService
from greendot.presence.withheld import WithheldChanges
from greendot.protocol.cluster import ListenedQuery, read_listened
from greendot.protocol.replies import SessionsReply
from greendot.push.devices import DeviceService
from greendot.push.held_pushes import HeldPushes
from greendot.rooms.before_publish import BeforePublish, PublishHook
from greendot.rooms.commands import RoomCommands
from greendot.rooms.messages import RoomMessages
from greendot.rooms.moderation import RoomModeration
from greendot.rooms.receipts import ReceiptService
from greendot.rooms.restrictions import RestrictionService
from greendot.rooms.service import RoomLimits, RoomService
from greendot.rooms.session_rooms import SessionRooms
from greendot.rooms.signals import Signals
from greendot.store.port import Store
from greendot.telemetry import log_events
from greendot.telemetry.log import log, set_node
from greendot.telemetry.metrics import Metrics
from greendot.telemetry.metrics_model import MetricSample
from greendot.visibility.cache import VisibilityCache
from greendot.visibility.freshness import VisibilityFreshness
from greendot.visibility.updates import VisibilityUpdates
from greendot.visibility.webhook import VisibilityClient, VisibilityWebhook

LISTENED_S = 1.0  # time for other nodes to report their listeners
CLOSE_S = 0.5  # for tasks under way when all clients are gone
DAY_MS = 86_400_000
RESTORE_S = 2.0  # in addition to a renewal, for all nodes to restore their sessions


class Node:
    """Services of a node between sockets, engine and store. `driven` False leaves the timers to a test."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        store: Store,
        clock: Clock,
        *,
        driven: bool = True,
        visibility_clients: Mapping[str, VisibilityClient] | None = None,  # by tenant; "" for all others
        publish_hooks: Mapping[str, PublishHook | None] | None = None,  # likewise
        push_queued: Callable[[], None] = lambda: None,  # called when there may be something to push
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.store = store
        self.clock = clock
        self._publish_hooks = publish_hooks or {}
        self.metrics = Metrics()
        self.registry = Registry()
        self.hub = Hub(self.metrics, node_settings.throttle(settings, clock), clock.monotonic)
        self.timers = Timers(clock, driven=driven)
        self.tasks = Tasks()
        self.recorder = EventRecorder(EventTail(bodies=settings.server.dev), clock)
        surge = SurgeDetector(clock)
        self._context = NodeContext(clock, self.timers, self.tasks, self.hub, self.registry, surge, self.recorder)
        self.slices = self._context.slices
        self.started_at = clock.now_ms()
        self.counters: list[Counters] = []  # counters of services beside the node
        self.draining = False  # the node wants no new clients
        self._driven = driven
        self._pace = RecoveryPace(
            settings.engine.restore_batch, settings.engine.stale_after_s, settings.node.renew_s + RESTORE_S
        )
        self.rpc = ClusterRpc(engine, lambda: self.incarnation, clock.monotonic)
        self._make_limits()
        self._make_presence(visibility_clients or {})
        self._make_rooms()
        self._make_messages()
        self._make_inbox(push_queued)
        self._make_auth()
        self._make_connect()
        self._make_reports()
        bus = self._make_bus()
        self._freshness.deliver = bus.receive
        # Called by the engine, on the fast path. A node alone misses no message.
        self.receive = bus.receive if settings.engine.url == "memory" else self._freshness.receive
        engine.turned = self.turned

    # --- construction ---

    def _make_limits(self) -> None:
        settings = self.settings
        quotas = {name: node_settings.quota(tenant.limits) for name, tenant in settings.tenants.items()}
        self.rate_limits = RateLimits(
            node_settings.quota(settings.limits),
            quotas,
            self.clock,
            self.metrics,
            self.registry.usage,
            clustered=settings.engine.url != "memory",
        )
        self.connection_limits = ConnectionLimits(self.registry, self.rate_limits)
        self.cluster_limits = ClusterLimits(
            self.engine, self.rate_limits, self.connection_limits, self.timers, lambda: self.incarnation
        )
        bounds = settings.overload
        levels = OverloadLevels(
            OverloadBounds(Load(bounds.lag_s, bounds.backlog, bounds.bus_lag_s), bounds.refuse_times), bounds.hold_s
        )
        self.overload_monitor = OverloadMonitor(levels, self.engine, self.hub, self.metrics)
        self.backpressure = Backpressure(self.engine, self.overload_monitor, self.timers.now)

    def _make_presence(self, visibility_clients: Mapping[str, VisibilityClient]) -> None:
        settings, engine, store, context = self.settings, self.engine, self.store, self._context
        presence = settings.presence
        self.statuses = StatusService(engine, store, context, settings.node.lease_s + presence.grace_s)
        self.profiles = ProfileService(engine, store, context, self.statuses, self.metrics)
        self._session_rooms = SessionRooms(engine, self.statuses, context)
        self.held_changes = HeldChanges(engine, self.rpc, context, self.statuses)
        self.inbox_delivery = InboxDelivery(store, context, self.metrics)
        self.sessions = SessionService(
            engine,
            self.statuses,
            self.profiles,
            context,
            node_settings.session_periods(settings),
            on_end=self._session_rooms.forget,
            on_left=self.inbox_delivery.left,
        )
        self.visibility_webhook = VisibilityWebhook(context, node_settings.answer_periods(settings), visibility_clients)
        self._freshness = self.statuses.freshness = VisibilityFreshness(engine.heard_at, context, settings.node.lease_s)
        policies = node_settings.visibility_policies(settings)
        self._visibility = VisibilityCache(
            store, context, policies, self.visibility_webhook, engine.now_ms, self._freshness
        )
        thresholds = CelebrityThresholds(presence.celebrity_watchers, presence.celebrity_polling)
        polled = [(tenant, user) for tenant, _, user in (named.partition("/") for named in presence.polled)]
        modes = ModeTable(polled)
        celebrities = Celebrities(context, self.metrics, engine.now_ms, thresholds, modes)
        self.presence_modes = PresenceModes(
            store, context, modes, lambda tenant, user: self.visibility_updates.publish(tenant, user, "mode")
        )
        watch_limits = WatchLimits(self.rate_limits.most_watches, self._pace.hold_s)
        last_seen = LastSeenReader(engine, store, context, round(presence.last_seen_days * DAY_MS))
        self.last_seen = LastSeenWriter(engine, store, context)
        self.watching = WatchService(
            engine,
            context,
            (celebrities, self.presence_modes),
            self._visibility,
            self.statuses,
            last_seen,
            self.held_changes,
            self.profiles,
            watch_limits,
        )
        self.withheld = WithheldChanges(self.statuses, context, self.watching)

    def _make_rooms(self) -> None:
        settings, engine, store, context = self.settings, self.engine, self.store, self._context
        limits = RoomLimits(
            self.rate_limits.most_rooms,
            settings.typing.large_room,
            node_settings.typing_times(settings.typing),
            self._pace.hold_s,
        )
        self.rooms = RoomService(
            engine,
            store,
            self._session_rooms,
            self._visibility,
            context,
            self.held_changes,
            self.profiles,
            limits,
            lambda tenant, user: self.revocation_service.restricted_until("mute", tenant, user),
        )
        self.visibility_updates = VisibilityUpdates(
            engine, store, context, self._visibility, self.visibility_webhook, self.rpc
        )
        self._set_appliers()
        self.receipts = ReceiptService(
            engine,
            store,
            self.rooms,
            self.statuses,
            self._visibility,
            context,
            self.metrics,
            settings.rooms.receipts_members,
        )
        self.signals = Signals(
            engine,
            self.clock,
            self.registry,
            self.hub,
            self.metrics,
            self.statuses,
            self._visibility,
            self.profiles,
            node_settings.invisible_signals(settings),
        )

    def _set_appliers(self) -> None:
        """Connect the services that apply changes of users, announced by any node."""
        updates = self.visibility_updates
        updates.appliers = {
            "status": self._apply_invisible,
            "signals": self.rooms.withdraw,
            "mode": self.presence_modes.apply,
        }
        updates.unused.append(self.rooms.signals.withdraw)
        updates.refreshers.append(self.presence_modes.refresh)
        self.statuses.confirm = self._confirm_invisible

    async def _apply_invisible(self, key: Key) -> None:
        await self.statuses.apply(key)
        await self.watching.refresh(key)  # the change of the user's state may come later than this announcement
        await self.rooms.withdraw(key)

    async def _confirm_invisible(self, key: Key) -> None:
        """Return when every node knows that the user is invisible, and shows no signal or typing of the user.

        A node may publish a signal or a start of typing before it applies the change, to a node that has applied it.
        After the first round all of these are published. In the second round they are dropped.
        """
        if await self.visibility_updates.publish(*key, "status") > 1:
            await self.visibility_updates.publish(*key, "signals")

    def _make_messages(self) -> None:
        engine, store, context = self.engine, self.store, self._context
        self.room_messages = RoomMessages(
            engine,
            store,
            self.rooms,
            context,
            self.rpc,
            self.rate_limits,
            self.profiles,
            self.visibility_updates.members_changed,
            BeforePublish(context, self._publish_hooks, self.metrics),
        )
        self.moderation = RoomModeration(engine, store, self.room_messages, context, self.metrics)

    def _make_inbox(self, push_queued: Callable[[], None]) -> None:
        settings, engine, store, context = self.settings, self.engine, self.store, self._context
        self.inbox_service = InboxService(
            engine,
            store,
            context,
            self.inbox_delivery,
            node_settings.kinds(settings),
            self.metrics,
            node_settings.queue_policies(settings),
            push_queued,
        )
        held_pushes = HeldPushes(store, context, lambda tenant: settings.push_of(tenant).pushes, push_queued)
        self.statuses.set_listeners.append(held_pushes.status_set)
        self.devices = DeviceService(store, self.clock, node_settings.public_keys(settings))

    def _make_auth(self) -> None:
        settings, store, context = self.settings, self.store, self._context
        self.tokens = make_tokens(settings.auth, self.clock.monotonic)
        self.jwks_refresh = JwksRefresh(self.tokens.remote, context, settings.auth.jwks_refresh_s)
        self.tenant_registry = Tenants(store, context, settings.tenants, strict=settings.auth.tenants == "registered")
        self.revocation_service = RevocationService(
            self.engine,
            store,
            self.sessions,
            context,
            self.rpc,
            settings.auth.longest_token_ms,
            alone=settings.engine.url == "memory",
        )
        self.revocation_service.mute_listeners.append(self.rooms.mutes.tenant_changed)
        self.restrictions = RestrictionService(self.engine, store, self.revocation_service, self.rpc, self.metrics)

    def _make_connect(self) -> None:
        settings, engine, context = self.settings, self.engine, self._context
        admission = settings.admission
        rate = admission.hellos_per_s if settings.limits.enabled else None
        self.hello = HelloService(
            HelloQueue[Connection](rate, admission.hellos_at_once, admission.waiting),
            engine,
            self.sessions,
            self.rooms,
            self.inbox_delivery,
            context,
            self.tokens,
            self.tenant_registry,
            self.revocation_service,
            self.rate_limits,
            self.connection_limits,
            self.metrics,
            settings.presence.heartbeat_s,
        )
        services = RecoveryServices(self.sessions, self._session_rooms, self.watching, self.rooms, self.inbox_delivery)
        self.recovery = Recovery(engine, services, context, self._pace, self.metrics)
        self.drainer = Drainer(
            self.registry.connections,
            self.clock,
            self.tasks,
            DrainPace(admission.hellos_per_s, settings.presence.grace_s),
        )
        cleanup = DisconnectCleanup(self.sessions, self.watching, self.rooms, self.recorder)
        self.dispatcher = Dispatcher(
            self._commands(), self.hello, cleanup, self.sessions, context, self.metrics, self.rate_limits
        )
        self.ingress = node_settings.ingress(settings, self.metrics, self.clock)
        key = self._make_streams()
        self.connections = ClientConnections(
            engine,
            context,
            self.metrics,
            self.ingress,
            self.sessions,
            self.hello,
            self.dispatcher,
            cleanup,
            self.drainer,
            self.rate_limits,
            self.connection_limits,
            self.streams,
            ConnectionOptions(key, admission.strangers, settings.auth.token_in_query),
        )
        self.overload_monitor.listeners += [self.hello.loaded, self.dispatcher.loaded, self.recorder.loaded]

    def _make_streams(self) -> bytes:
        """Make the registry of event streams; return the key for hashes of addresses and user agents."""
        shared = hash_key(self.settings.privacy.hash_key, self.settings.auth.secret)
        own = shared or token_bytes(32)
        self.streams = EventStreams(
            self.engine, self.rpc, self.metrics, lambda: self.incarnation, own, shared, self.engine.live_nodes
        )
        return own

    def _commands(self) -> CommandTable:
        """Return the command handlers of all capabilities."""
        connection_commands = ConnectionCommands(
            self.tokens, self.revocation_service, self.sessions, self.rooms, self.watching, self.clock
        )
        return merge_commands(
            connection_commands.commands,
            PresenceCommands(self.statuses, self.watching, self.rate_limits, self.rooms.hush).commands,
            self.visibility_updates.commands,
            RoomCommands(
                self.rooms, self.room_messages, self.signals, self.statuses, self.rate_limits, self.recorder
            ).commands,
            self.receipts.commands,
            self.inbox_service.commands,
            self.devices.commands,
        )

    def _make_bus(self) -> BusDispatcher:
        """Return the dispatcher with the bus handlers of all capabilities."""
        bus = BusDispatcher(
            self.metrics,
            {Change: self.withheld.changed, Acknowledged: self.rpc.acknowledged, Deliver: self._deliver},
            self.statuses.bus,
            self.profiles.bus,
            self.visibility_updates.bus,
            self.rooms.bus,
            self.receipts.bus,
            self.inbox_delivery.bus,
            self.revocation_service.bus,
            self.hello.bus,
            self.recovery.bus,
            self.held_changes.bus,
            self.connections.bus,
            self.streams.bus,
            self.cluster.bus,
            self.cluster_limits.bus,
        )
        assert bus.handled == {*get_args(Message)}, "every message of the bus has one handler"
        return bus

    def _make_reports(self) -> None:
        self._sources = NodeSources(
            clock=self.clock,
            engine=self.engine,
            store=self.store,
            registry=self.registry,
            hub=self.hub,
            timers=self.timers,
            tasks=self.tasks,
            metrics=self.metrics,
            recorder=self.recorder,
            sessions=self.sessions,
            statuses=self.statuses,
            watching=self.watching,
            rooms=self.rooms,
            hello=self.hello,
            overload_monitor=self.overload_monitor,
            recovery=self.recovery,
            drainer=self.drainer,
            tenant_registry=self.tenant_registry,
            visibility_webhook=self.visibility_webhook,
            counters=self.counters,
            started_at=self.started_at,
            tenant_metrics=self.settings.server.tenant_metrics,
        )
        self._metrics_page = MetricsPage(self._sources)
        self.cluster = NodeReporter(self._sources, self.engine, self.rpc, lambda: self.draining)
        self._user_sessions = UserSessions(self.engine, self.cluster)

    @property
    def incarnation(self) -> str:
        """Return this node's name on the cluster."""
        return self.sessions.incarnation

    # --- life ---

    async def start(self) -> None:
        await self.store.start()
        try:
            self.sessions.incarnation = await self.engine.start(self)
        except BaseException:
            await self.store.close()
            raise
        self.visibility_updates.start()
        self.last_seen.start()
        self.profiles.start()
        self.tenant_registry.start()
        if self._driven:
            self.overload_monitor.start()
        await self.jwks_refresh.start()
        await self.revocation_service.start()
        if self.settings.engine.url != "memory":
            await self.cluster_limits.start()
        set_node(self.incarnation)
        log(log_events.NODE_STARTED, node=self.incarnation, version=__version__)

    def announce_end(self) -> None:
        """Report in `/readyz` that this node will stop. Nothing else changes."""
        self.draining = True

    async def drain(self, within_s: float) -> None:
        """Send all clients to other nodes, wait for their sockets to close, abort the rest."""
        self.draining = True
        await self.drainer.run(within_s)

    async def close(self) -> None:
        self.timers.close()
        self.overload_monitor.stop()
        await self.jwks_refresh.close()
        self.sessions.write_ends()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.tasks.finish()
                await self.inbox_delivery.receipts.flush()
        except TimeoutError:
            await self.tasks.cancel()
        await self.last_seen.close()
        await self.engine.close()
        await self.store.close()

    # --- from the engine (engine.port.Host) ---

    def lost(self, part: Part) -> None:
        self.recovery.went_away(part)

    def found(self, part: Part, *, intact: bool) -> None:
        self.revocation_service.refresh()
        self.recovery.found(part, intact=intact)
        self.visibility_updates.lost()
        self.profiles.compare()

    def turned(self, turn: Transition) -> None:
        self.recorder.turned(turn)
        self.last_seen.turned(turn)

    def reborn(self, incarnation: str) -> None:
        self.recovery.reborn(incarnation)
        self.visibility_updates.reborn()

    def died(self, incarnation: str) -> None:
        self.recovery.died()

    def _deliver(self, topic: Topic, message: Deliver) -> None:
        (self.signals if topic.kind == "user" else self.rooms).deliver(topic, message)

    # --- for foreign protocols ---

    def foreign_services(self) -> NodeServices:
        """Return the services that the protocols of package `compat` use."""
        return NodeServices(
            clock=self.clock,
            context=self._context,
            engine=self.engine,
            store=self.store,
            connections=self.connections,
            dispatcher=self.dispatcher,
            rooms=self.rooms,
            room_messages=self.room_messages,
            rate_limits=self.rate_limits,
            backpressure=self.backpressure,
            sessions_of=self.sessions_of,
            listened=self._listened,
            is_invisible=self.statuses.is_invisible,
            heartbeat_s=self.settings.presence.heartbeat_s,
        )

    async def _listened(self, query: ListenedQuery) -> dict[str, int]:
        """Return the listeners of rooms on all nodes that answer in time: room → number."""
        found: Counter[str] = Counter()
        for answer in (await self.cluster.ask(self.engine.live_nodes(), query, LISTENED_S)).values():
            found.update(read_listened(answer).listeners)
        return dict(found)

    # --- for operators ---

    async def disconnect_all(self, session_ids: Iterable[str], code: int, reason: str, tenant: str) -> int:
        return await self.connections.disconnect_all(session_ids, code, reason, tenant)

    def cut(self, session_id: str) -> bool:
        return self.connections.cut(session_id)

    async def sessions_of(self, tenant: str, user: str) -> SessionsReply:
        """Return the sessions on all nodes."""
        return await self._user_sessions.of(tenant, user)

    @property
    def overload(self) -> str | None:
        """Return the reason why new work is refused; None while it is not."""
        return self.overload_monitor.trouble

    def stats(self) -> dict[str, Any]:
        return stats.stats(self._sources)

    def tenant_stats(self, tenant: str) -> dict[str, Any]:
        return stats.tenant_stats(self._sources, tenant)

    def metrics_items(self) -> Iterator[tuple[str, float]]:
        return stats.metrics(self._sources)

    async def scrape(self) -> list[MetricSample]:
        """Return every metric, for `/metrics`."""
        return await self._metrics_page.scrape()
