"""The parts of a node, put together: the one place in the gateway that knows the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from secrets import token_bytes

from greendot.app.tokens import make_tokens
from greendot.auth.jwks import Renewing
from greendot.auth.revocation import Revoking
from greendot.auth.tenants import Tenancy
from greendot.clock import Clock
from greendot.config import Limits, Settings, Visibility
from greendot.config.settings import Typing as TypingSettings
from greendot.connect.admission import Reception
from greendot.connect.admission_model import Admission
from greendot.connect.commands import Commands
from greendot.connect.commands import Parts as Acting
from greendot.connect.dispatch import Intake
from greendot.connect.handshake import Greeting
from greendot.connect.recovery import Pace, Recovery
from greendot.connect.recovery import Parts as RecoveryParts
from greendot.connect.token_refresh import Granting
from greendot.connect.version_fallback import Refreshing
from greendot.engine.port import Engine
from greendot.ids import hash_key
from greendot.inbox.delivery import Inboxes
from greendot.inbox.kinds_model import Kind, Kinds
from greendot.inbox.service import Notifying
from greendot.limits.backpressure import Targets
from greendot.limits.connection_limits import Headcount
from greendot.limits.model import ACTIVITIES, SCOPES, Quota
from greendot.limits.overload import Pressure
from greendot.limits.overload_model import Bounds, Breaker, Load
from greendot.limits.rate_limits import Limiting
from greendot.node.acknowledged import Acks
from greendot.node.cluster_rpc import Survey
from greendot.node.context import Shared
from greendot.node.event_recorder import Witness
from greendot.node.event_recorder_model import Tail
from greendot.node.hub import Hub
from greendot.node.hub_model import Throttle
from greendot.node.registry import Registry
from greendot.node.surge_detector import Arrivals
from greendot.node.tasks import Tasks
from greendot.node.timers import Timers
from greendot.presence.celebrities import Crowds
from greendot.presence.celebrity_model import Crowding
from greendot.presence.grace_model import Graces
from greendot.presence.sessions import Periods, Sessions
from greendot.presence.status import Statuses
from greendot.presence.watch import Watching, WatchLimits
from greendot.protocol.events import TypingTimes
from greendot.push.devices import Devices
from greendot.rooms.messages import Speaking
from greendot.rooms.service import RoomLimits, Rooms
from greendot.rooms.session_rooms import Seating
from greendot.store.port import Notice, Store
from greendot.telemetry.metrics import Metrics
from greendot.transport.connection import Connection
from greendot.transport.ingress import Doorstep, Rules
from greendot.transport.ingress_model import Hosts, Origins, Proxies
from greendot.visibility.cache import Sights
from greendot.visibility.model import Rule
from greendot.visibility.updates import Parts as Looking
from greendot.visibility.updates import Regarding
from greendot.visibility.webhook import Asking

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
        self.limiting = Limiting(_quota(settings.limits), quotas, clock, self.metrics, self.registry.tallies)
        self.headcount = Headcount(self.registry, self.limiting)
        self.timers = Timers(clock, driven=driven)
        self.tasks = Tasks()
        self.tokens = make_tokens(settings.auth, clock.monotonic)
        self.hash_key = hash_key(settings.privacy.hash_key, settings.auth.secret) or token_bytes(32)
        self.doorstep = _doorstep(settings, self.metrics, clock)
        self.started_at = clock.now_ms()
        self.counters: list[Callable[[], Mapping[str, float]]] = []  # of what runs beside it and is looked at with it
        self._build(settings, engine, store, clock)

    def _build(self, settings: Settings, engine: Engine, store: Store, clock: Clock) -> None:
        typing, presence = settings.typing, settings.presence
        self.witness = Witness(Tail(bodies=settings.server.dev), clock)
        shared = Shared(clock, self.timers, self.tasks, self.hub, self.registry, Arrivals(clock), self.witness)
        self.slices = shared.slices
        self.refreshing = Refreshing(shared)
        self.statuses = Statuses(engine, store, shared)
        graces = Graces(presence.grace_s, presence.clean_grace_s, presence.silent_grace_s)
        accept = settings.engine.when_away == "accept"
        periods = Periods(presence.dead_after_s, presence.idle_s, graces, settings.auth.leeway_s, accept)
        seating = Seating(engine, self.statuses, shared)
        self.sessions = Sessions(engine, self.statuses, seating, shared, periods)
        pace = Pace(settings.engine.restore_batch, settings.engine.stale_after_s, settings.node.renew_s + RESTORE_S)
        crowds = self._expect_crowds(settings, engine, shared)
        self.asking = Asking(shared, _answer_periods(settings))
        sights = Sights(store, shared, _rules(settings), self.asking, engine.now_ms)
        watch_limits = WatchLimits(self.limiting.most_watches, pace.hold_s)
        self.watching = Watching(engine, shared, crowds, sights, self.statuses, watch_limits)
        room_limits = RoomLimits(self.limiting.most_rooms, typing.large_room, _typing_times(typing), pace.hold_s)
        self.rooms = Rooms(engine, store, seating, sights, shared, room_limits)
        self.acks = Acks(engine, lambda: self.incarnation)
        self.survey = Survey(engine, lambda: self.incarnation)
        looking = Looking(sights, self.watching, self.rooms, self.acks, self.asking)
        self.regarding = Regarding(engine, store, looking, shared)
        self.speaking = Speaking(engine, store, self.rooms, shared, self.acks, self.limiting)
        self.speaking.moved = self.regarding.members_changed
        self.inboxes = Inboxes(store, shared, self.metrics)
        self.sessions.left = self.inboxes.left
        self.devices = Devices(store, clock)
        self.notifying = Notifying(engine, store, shared, self.inboxes, _kinds(settings), self.metrics)
        self.notifying.is_pushed = _pushed(settings)
        recovering = RecoveryParts(self.sessions, seating, self.watching, self.rooms, self.inboxes)
        self.recovery = Recovery(engine, recovering, shared, pace, self.metrics)
        self.renewing = Renewing(self.tokens.remote, shared, settings.auth.jwks_refresh_s)
        self.tenancy = Tenancy(store, shared, settings.tenants, strict=settings.auth.tenants == "registered")
        self.revoking = Revoking(engine, store, self.sessions, shared, self.acks, _longest_ms(settings))
        self.revoking.alone = settings.engine.url == "memory"
        entry, promises = (
            (self.tokens, self.tenancy, self.revoking),
            (presence.heartbeat_s, self.limiting, self.headcount),
        )
        greeting = Greeting(self.sessions, self.rooms, self.inboxes, shared, entry, promises)
        self.reception = self._receive(settings, engine, shared, greeting)
        self.pressure = self._measure(settings, engine)
        self.targets = Targets(engine, self.pressure, self.timers.now)
        self.intake = Intake(
            self._commands(engine, clock), self.reception, self.sessions, shared, self.metrics, self.limiting
        )
        self.pressure.told += [self.reception.loaded, self.intake.loaded, self.witness.loaded]

    def _commands(self, engine: Engine, clock: Clock) -> Commands:
        return Commands(
            Acting(
                granting=Granting(self.sessions, self.rooms, self.watching),
                revoking=self.revoking,
                statuses=self.statuses,
                regarding=self.regarding,
                watching=self.watching,
                rooms=self.rooms,
                speaking=self.speaking,
                notifying=self.notifying,
                limiting=self.limiting,
                witness=self.witness,
                devices=self.devices,
                bus=engine,
                tokens=self.tokens,
                clock=clock,
            )
        )

    def _expect_crowds(self, settings: Settings, engine: Engine, shared: Shared) -> Crowds:
        presence = settings.presence
        crowding = Crowding(presence.celebrity_watchers, presence.celebrity_polling)
        forced = [(tenant, user) for tenant, _, user in (named.partition("/") for named in presence.polled)]
        return Crowds(shared, self.metrics, engine.now_ms, crowding, forced)

    def _measure(self, settings: Settings, engine: Engine) -> Pressure:
        bounds = settings.overload
        load = Load(bounds.lag_s, bounds.backlog, bounds.bus_lag_s)
        return Pressure(Breaker(Bounds(load, bounds.refuse_times), bounds.hold_s), engine, self.hub, self.metrics)

    def _receive(self, settings: Settings, engine: Engine, shared: Shared, greeting: Greeting) -> Reception:
        admission, limited = settings.admission, settings.limits.enabled
        rate = admission.hellos_per_s if limited else None
        queue = Admission[Connection](rate, admission.hellos_at_once, admission.waiting)
        return Reception(queue, greeting, self.sessions, engine, shared, self.metrics)

    @property
    def incarnation(self) -> str:
        """This node's name, as the others know it."""
        return self.sessions.incarnation


def _doorstep(settings: Settings, metrics: Metrics, clock: Clock) -> Doorstep:
    door = settings.door
    proxies = Proxies(door.trusted_proxies, door.proxy_header)
    rules = Rules(Origins(door.origins), Hosts(door.hosts), proxies, door.connections_per_ip)
    return Doorstep(rules, metrics, clock.monotonic)


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


def _throttle(settings: Settings, clock: Clock) -> Throttle | None:
    limits = settings.limits
    return Throttle(limits.sends_per_s, clock.monotonic()) if limits.enabled and limits.sends_per_s else None


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


def _rules(settings: Settings) -> Callable[[str], Rule]:
    """The policies of tenants, by name."""
    common = _rule(settings.visibility)
    own = {name: _rule(tenant.visibility) for name, tenant in settings.tenants.items()}
    return lambda tenant: own.get(tenant, common)


def _answer_periods(settings: Settings) -> dict[str, float]:
    own = {name: tenant.visibility.ask_cache_s for name, tenant in settings.tenants.items()}
    return own | {"": settings.visibility.ask_cache_s}


def _rule(visibility: Visibility) -> Rule:
    return Rule(visibility.policy, round(visibility.recent_days * 86_400_000))
