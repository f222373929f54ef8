"""Values that a node's services take, made from the settings."""

from __future__ import annotations

import resource
from collections.abc import Callable

from greendot.clock import Clock
from greendot.config import Limits, Settings, Visibility
from greendot.config.push import TenantPush
from greendot.config.settings import Typing as TypingSettings
from greendot.inbox.kinds_model import Kinds, NotificationKind
from greendot.limits.model import ACTIVITIES, SCOPES, Quota
from greendot.node.hub_model import WriteThrottle
from greendot.presence.grace_model import Graces, SessionPeriods
from greendot.protocol.events import TypingTimes
from greendot.push.policy_model import QueuePolicy
from greendot.rooms.signals import InvisibleSignals
from greendot.telemetry.metrics import Metrics
from greendot.transport.ingress import IngressPolicy, IngressRules
from greendot.transport.ingress_model import DescriptorLimits, Hosts, Origins, Proxies, descriptor_limits
from greendot.visibility.model import VisibilityPolicy

MANY = 1 << 30  # file descriptors of a process without a limit


def ingress(settings: Settings, metrics: Metrics, clock: Clock) -> IngressPolicy:
    door = settings.door
    proxies = Proxies(door.trusted_proxies, door.proxy_header)
    rules = IngressRules(Origins(door.origins), Hosts(door.hosts), proxies, door.connections_per_ip, _descriptors())
    return IngressPolicy(rules, metrics, clock.monotonic)


def _descriptors() -> DescriptorLimits:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return descriptor_limits(MANY if files == resource.RLIM_INFINITY else files)


def session_periods(settings: Settings) -> SessionPeriods:
    presence, accept = settings.presence, settings.engine.when_away == "accept"
    graces = Graces(presence.grace_s, presence.clean_grace_s, presence.silent_grace_s)
    return SessionPeriods(presence.dead_after_s, presence.idle_s, graces, settings.auth.leeway_s, accept)


def invisible_signals(settings: Settings) -> dict[str, InvisibleSignals]:
    return {name: kind.invisible for name, kind in settings.kinds.items()}


def kinds(settings: Settings) -> Kinds:
    return Kinds({name: NotificationKind(kind.promise, kind.bus) for name, kind in settings.kinds.items()})


def queue_policies(settings: Settings) -> dict[str, QueuePolicy]:
    own = {name: _queue_policy(tenant.push) for name, tenant in settings.tenants.items()}
    return own | {"": _queue_policy(settings.push)}


def _queue_policy(push: TenantPush) -> QueuePolicy:
    return QueuePolicy(push.pushes, frozenset(name for name, kind in push.kinds.items() if not kind.enabled))


def public_keys(settings: Settings) -> Callable[[str], str | None]:
    """Return the keys with which browsers subscribe to Web Push, by tenant."""
    if not any(push.webpush_key_file for push in (settings.push, *(own.push for own in settings.tenants.values()))):
        return lambda tenant: None
    from greendot.app.push import public_keys  # large, and not needed by most servers

    return public_keys(settings)


def typing_times(typing: TypingSettings) -> TypingTimes:
    seconds = typing.repeats_every_s, typing.ttl_s, typing.throttle_s
    return TypingTimes(*(round(time_s * 1000) for time_s in seconds))


def throttle(settings: Settings, clock: Clock) -> WriteThrottle | None:
    limits = settings.limits
    return WriteThrottle(limits.sends_per_s, clock.monotonic()) if limits.enabled and limits.sends_per_s else None


def quota(limits: Limits) -> Quota:
    return Quota(
        enabled=limits.enabled,
        commands=(limits.commands_per_s, limits.commands_burst),
        burst_s=limits.burst_s,
        rates={(scope, activity): limits.rate(scope, activity) for scope in SCOPES for activity in ACTIVITIES},
        watches=limits.watches,
        rooms=limits.rooms,
        connections=(limits.user_connections, limits.tenant_connections),
    )


def visibility_policies(settings: Settings) -> dict[str, VisibilityPolicy]:
    own = {name: _policy(tenant.visibility) for name, tenant in settings.tenants.items()}
    return own | {"": _policy(settings.visibility)}


def answer_periods(settings: Settings) -> dict[str, float]:
    own = {name: tenant.visibility.ask_cache_s for name, tenant in settings.tenants.items()}
    return own | {"": settings.visibility.ask_cache_s}


def _policy(visibility: Visibility) -> VisibilityPolicy:
    return VisibilityPolicy(visibility.policy, round(visibility.recent_days * 86_400_000))
