"""The parts of a node, put together: the one place in the gateway that knows the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from secrets import token_bytes

from greendot.app.tokens import make_tokens
from greendot.auth.jwks_refresh import JwksRefresh
from greendot.auth.revocation import RevocationService
from greendot.auth.tenants import Tenants
from greendot.clock import Clock
from greendot.config import Limits, Settings, Visibility
from greendot.config.settings import Typing as TypingSettings
from greendot.connect.admission import HelloAdmission
from greendot.connect.admission_model import HelloQueue
from greendot.connect.commands import Commands
from greendot.connect.commands import Parts as Acting
from greendot.connect.dispatch import Dispatcher
from greendot.connect.handshake import Handshake
from greendot.connect.recovery import Recovery, RecoveryPace
from greendot.connect.recovery import RecoveryServices as RecoveryParts
from greendot.connect.token_refresh import TokenRefreshService
from greendot.connect.version_fallback import VersionFallback
from greendot.engine.port import Engine
from greendot.ids import hash_key
from greendot.inbox.delivery import InboxDelivery
from greendot.inbox.kinds_model import Kind, Kinds
from greendot.inbox.service import InboxService
from greendot.limits.backpressure import Backpressure
from greendot.limits.connection_limits import ConnectionLimits
from greendot.limits.model import ACTIVITIES, SCOPES, Quota
from greendot.limits.overload import OverloadMonitor
from greendot.limits.overload_model import Load, OverloadBounds, OverloadLevels
from greendot.limits.rate_limits import RateLimits
from greendot.node.acknowledged import Acks
from greendot.node.cluster_rpc import Survey
from greendot.node.context import NodeContext
from greendot.node.event_recorder import EventRecorder
from greendot.node.event_recorder_model import EventTail
from greendot.node.hub import Hub
from greendot.node.hub_model import WriteThrottle
from greendot.node.registry import Registry
from greendot.node.surge_detector import SurgeDetector
from greendot.node.tasks import Tasks
from greendot.node.timers import Timers
from greendot.presence.celebrities import Celebrities
from greendot.presence.celebrity_model import CelebrityThresholds
from greendot.presence.grace_model import Graces
from greendot.presence.sessions import SessionPeriods, SessionService
from greendot.presence.status import StatusService
from greendot.presence.watch import WatchLimits, WatchService
from greendot.protocol.events import TypingTimes
from greendot.push.devices import Devices
from greendot.rooms.messages import RoomMessages
from greendot.rooms.service import RoomLimits, RoomService
from greendot.rooms.session_rooms import SessionRooms
from greendot.store.port import Notice, Store
from greendot.telemetry.metrics import Metrics
from greendot.transport.connection import Connection
from greendot.transport.ingress import IngressPolicy, IngressRules
from greendot.transport.ingress_model import Hosts, Origins, Proxies
from greendot.visibility.cache import VisibilityCache
from greendot.visibility.model import VisibilityPolicy
from greendot.visibility.updates import Parts as Looking
from greendot.visibility.updates import VisibilityUpdates
from greendot.visibility.webhook import VisibilityWebhook

RESTORE_S = 2.0  # beside a renewal, what all nodes need to restore their sessions


class Parts:
    """What a node consists of."""

    def __init__(self, settings: Settings, engine: Engine, store: Store, clock: Clock, *, driven: bool) -> None:
        self.settings = settings
        self.engine = engine
        self.store = store
        self.clock = clock
        self.metrics = Metrics()
        self.registry = Registry()
        self.hub = Hub(self.metrics, _throttle(settings, clock), clock.monotonic)
        quotas = {name: _quota(tenant.limits) for name, tenant in settings.tenants.items()}
        self.rate_limits = RateLimits(_quota(settings.limits), quotas, clock, self.metrics, self.registry.usage)
        self.connection_limits = ConnectionLimits(self.registry, self.rate_limits)
        self.timers = Timers(clock, driven=driven)
        self.tasks = Tasks()
        self.tokens = make_tokens(settings.auth, clock.monotonic)
        self.hash_key = hash_key(settings.privacy.hash_key, settings.auth.secret) or token_bytes(32)
        self.ingress = _ingress(settings, self.metrics, clock)
        self.started_at = clock.now_ms()
        self.counters: list[Callable[[], Mapping[str, float]]] = []  # of what runs beside it and is looked at with it
        self._build(settings, engine, store, clock)

    def _build(self, settings: Settings, engine: Engine, store: Store, clock: Clock) -> None:
        typing, presence = settings.typing, settings.presence
        self.recorder = EventRecorder(EventTail(bodies=settings.server.dev), clock)
        context = NodeContext(
            clock, self.timers, self.tasks, self.hub, self.registry, SurgeDetector(clock), self.recorder
        )
        self.slices = context.slices
        self.version_fallback = VersionFallback(context)
        self.statuses = StatusService(engine, store, context)
        graces = Graces(presence.grace_s, presence.clean_grace_s, presence.silent_grace_s)
        accept = settings.engine.when_away == "accept"
        periods = SessionPeriods(presence.dead_after_s, presence.idle_s, graces, settings.auth.leeway_s, accept)
        session_rooms = SessionRooms(engine, self.statuses, context)
        self.sessions = SessionService(engine, self.statuses, session_rooms, context, periods)
        pace = RecoveryPace(
            settings.engine.restore_batch, settings.engine.stale_after_s, settings.node.renew_s + RESTORE_S
        )
        celebrities = self._expect_crowds(settings, engine, context)
        self.visibility_webhook = VisibilityWebhook(context, _answer_periods(settings))
        visibility = VisibilityCache(store, context, _rules(settings), self.visibility_webhook, engine.now_ms)
        watch_limits = WatchLimits(self.rate_limits.most_watches, pace.hold_s)
        self.watching = WatchService(engine, context, celebrities, visibility, self.statuses, watch_limits)
        room_limits = RoomLimits(self.rate_limits.most_rooms, typing.large_room, _typing_times(typing), pace.hold_s)
        self.rooms = RoomService(engine, store, session_rooms, visibility, context, room_limits)
        self.acks = Acks(engine, lambda: self.incarnation)
        self.cluster = Survey(engine, lambda: self.incarnation)
        looking = Looking(visibility, self.watching, self.rooms, self.acks, self.visibility_webhook)
        self.visibility_updates = VisibilityUpdates(engine, store, looking, context)
        self.room_messages = RoomMessages(engine, store, self.rooms, context, self.acks, self.rate_limits)
        self.room_messages.moved = self.visibility_updates.members_changed
        self.inboxes = InboxDelivery(store, context, self.metrics)
        self.sessions.left = self.inboxes.left
        self.devices = Devices(store, clock)
        self.inbox_service = InboxService(engine, store, context, self.inboxes, _kinds(settings), self.metrics)
        self.inbox_service.is_pushed = _pushed(settings)
        recovering = RecoveryParts(self.sessions, session_rooms, self.watching, self.rooms, self.inboxes)
        self.recovery = Recovery(engine, recovering, context, pace, self.metrics)
        self.jwks_refresh = JwksRefresh(self.tokens.remote, context, settings.auth.jwks_refresh_s)
        self.tenant_registry = Tenants(store, context, settings.tenants, strict=settings.auth.tenants == "registered")
        self.revocation_service = RevocationService(
            engine, store, self.sessions, context, self.acks, _longest_ms(settings)
        )
        self.revocation_service.alone = settings.engine.url == "memory"
        entry, promises = (
            (self.tokens, self.tenant_registry, self.revocation_service),
            (presence.heartbeat_s, self.rate_limits, self.connection_limits),
        )
        handshake = Handshake(self.sessions, self.rooms, self.inboxes, context, entry, promises)
        self.admission = self._receive(settings, engine, context, handshake)
        self.overload_monitor = self._measure(settings, engine)
        self.targets = Backpressure(engine, self.overload_monitor, self.timers.now)
        self.dispatcher = Dispatcher(
            self._commands(engine, clock), self.admission, self.sessions, context, self.metrics, self.rate_limits
        )
        self.overload_monitor.told += [self.admission.loaded, self.dispatcher.loaded, self.recorder.loaded]

    def _commands(self, engine: Engine, clock: Clock) -> Commands:
        return Commands(
            Acting(
                token_refresh=TokenRefreshService(self.sessions, self.rooms, self.watching),
                revocation_service=self.revocation_service,
                statuses=self.statuses,
                visibility_updates=self.visibility_updates,
                watching=self.watching,
                rooms=self.rooms,
                room_messages=self.room_messages,
                inbox_service=self.inbox_service,
                rate_limits=self.rate_limits,
                recorder=self.recorder,
                devices=self.devices,
                bus=engine,
                tokens=self.tokens,
                clock=clock,
            )
        )

    def _expect_crowds(self, settings: Settings, engine: Engine, context: NodeContext) -> Celebrities:
        presence = settings.presence
        crowding = CelebrityThresholds(presence.celebrity_watchers, presence.celebrity_polling)
        forced = [(tenant, user) for tenant, _, user in (named.partition("/") for named in presence.polled)]
        return Celebrities(context, self.metrics, engine.now_ms, crowding, forced)

    def _measure(self, settings: Settings, engine: Engine) -> OverloadMonitor:
        bounds = settings.overload
        load = Load(bounds.lag_s, bounds.backlog, bounds.bus_lag_s)
        return OverloadMonitor(
            OverloadLevels(OverloadBounds(load, bounds.refuse_times), bounds.hold_s), engine, self.hub, self.metrics
        )

    def _receive(
        self, settings: Settings, engine: Engine, context: NodeContext, handshake: Handshake
    ) -> HelloAdmission:
        admission, limited = settings.admission, settings.limits.enabled
        rate = admission.hellos_per_s if limited else None
        queue = HelloQueue[Connection](rate, admission.hellos_at_once, admission.waiting)
        return HelloAdmission(queue, handshake, self.sessions, engine, context, self.metrics)

    @property
    def incarnation(self) -> str:
        """This node's name, as the others know it."""
        return self.sessions.incarnation


def _ingress(settings: Settings, metrics: Metrics, clock: Clock) -> IngressPolicy:
    door = settings.door
    proxies = Proxies(door.trusted_proxies, door.proxy_header)
    rules = IngressRules(Origins(door.origins), Hosts(door.hosts), proxies, door.connections_per_ip)
    return IngressPolicy(rules, metrics, clock.monotonic)


def _kinds(settings: Settings) -> Kinds:
    return Kinds({name: Kind(kind.promise, kind.bus) for name, kind in settings.kinds.items()})


def _pushed(settings: Settings) -> Callable[[Notice], bool]:
    """Whether one is queued to be pushed: what is never sent is not even looked at."""

    def is_pushed(notice: Notice) -> bool:
        push = settings.push_of(notice.tenant)
        kind = push.kinds.get(notice.kind)
        return notice.push and push.pushes and (kind is None or kind.enabled)

    return is_pushed


def _longest_ms(settings: Settings) -> int:
    """How long a token is accepted after it was issued."""
    return round((settings.auth.longest_token_s + settings.auth.leeway_s) * 1000)


def _typing_times(typing: TypingSettings) -> TypingTimes:
    seconds = typing.repeats_every_s, typing.ttl_s, typing.throttle_s
    return TypingTimes(*(round(time_s * 1000) for time_s in seconds))


def _throttle(settings: Settings, clock: Clock) -> WriteThrottle | None:
    limits = settings.limits
    return WriteThrottle(limits.sends_per_s, clock.monotonic()) if limits.enabled and limits.sends_per_s else None


def _quota(limits: Limits) -> Quota:
    return Quota(
        enabled=limits.enabled,
        commands=(limits.commands_per_s, limits.commands_burst),
        burst_s=limits.burst_s,
        rates={(scope, activity): limits.rate(scope, activity) for scope in SCOPES for activity in ACTIVITIES},
        watches=limits.watches,
        rooms=limits.rooms,
        connections=(limits.user_connections, limits.tenant_connections),
    )


def _rules(settings: Settings) -> Callable[[str], VisibilityPolicy]:
    """The policies of tenants, by name."""
    common = _rule(settings.visibility)
    own = {name: _rule(tenant.visibility) for name, tenant in settings.tenants.items()}
    return lambda tenant: own.get(tenant, common)


def _answer_periods(settings: Settings) -> dict[str, float]:
    own = {name: tenant.visibility.ask_cache_s for name, tenant in settings.tenants.items()}
    return own | {"": settings.visibility.ask_cache_s}


def _rule(visibility: Visibility) -> VisibilityPolicy:
    return VisibilityPolicy(visibility.policy, round(visibility.recent_days * 86_400_000))
