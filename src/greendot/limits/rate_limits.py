"""Rate limits of connections, users, rooms and tenants on this node.

Limits of tenants hold for all nodes together: `limits.cluster_limits` gives each node its part.

All limits of an activity are charged together, or none. A room is charged only by users who may send to it. Otherwise a
stranger could use up the room's limit.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import ceil

from greendot.clock import Clock
from greendot.errors import Refused
from greendot.limits.frame_limit_model import CommandLimit
from greendot.limits.model import (
    CONNECTION,
    KEY,
    ROOM,
    USER,
    BucketRule,
    Excess,
    Quota,
    TenantRules,
    all_buckets,
    ask,
    owe,
)
from greendot.limits.share_model import LimitKey
from greendot.node.session import Connection, Session
from greendot.node.usage import UsageByTenant
from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.codes import Err
from greendot.protocol.events import Limits
from greendot.telemetry.metrics import Metrics

COMMANDS, TYPING, SIGNALS, SENDS, WATCHES = "commands", "typing commands", "signals", "messages", "user lookups"
REQUESTS = "requests"


class RateLimits:
    """Rate limits of one node. Methods raise Refused with `rate_limited` and the time to wait."""

    def __init__(
        self,
        quota: Quota,
        tenants: Mapping[str, Quota],
        clock: Clock,
        metrics: Metrics,
        usage: UsageByTenant,
        *,
        clustered: bool = False,
    ) -> None:
        self._common = quota
        self._quotas = tenants  # tenants with a quota of their own
        self._clock = clock
        self._metrics = metrics
        self._usage = usage
        buckets = all_buckets()
        self._common_rules = TenantRules(quota, buckets, clustered=clustered)
        self._common_shown = _shown(quota)
        self._shown = {tenant: _shown(own) for tenant, own in tenants.items()}
        self._rules = {tenant: TenantRules(own, buckets, clustered=clustered) for tenant, own in tenants.items()}

    # --- connections ---

    def opened(self, connection: Connection) -> None:
        """Limit a connection before hello, also where users are not limited."""
        connection.limit = CommandLimit(*self._common.commands, connection.opened_at)

    def greeted(self, connection: Connection, session: Session) -> None:
        """Apply the limits of the session's tenant from now on."""
        session.rules = self._of(session.tenant)
        quota = self._quota(session.tenant)
        if not quota.enabled:
            connection.limit = None
        elif connection.limit is None:
            connection.limit = CommandLimit(*quota.commands, connection.received_at)
        elif quota is not self._common:
            connection.limit.change(*quota.commands)

    def shown(self, tenant: str) -> Limits:
        """Return the limits that the welcome shows, so that the client can stay within them."""
        return self._shown.get(tenant, self._common_shown)

    def most_watches(self, tenant: str) -> int:
        return self._quota(tenant).watches

    def most_connections(self, tenant: str) -> tuple[int, int]:
        """Return the largest numbers of connections of one user, and of the tenant."""
        return self._quota(tenant).connections

    def most_rooms(self, tenant: str) -> int:
        return self._quota(tenant).rooms

    def _quota(self, tenant: str) -> Quota:
        return self._quotas.get(tenant, self._common)

    def _of(self, tenant: str) -> TenantRules:
        return self._rules.get(tenant, self._common_rules)

    # --- the cluster ---

    def take_demand(self) -> dict[LimitKey, int]:
        """Return the tokens that tenants requested since the last call, granted or not, by limit."""
        return {
            (activity, str(tenant)): amount
            for rules in (self._common_rules, *self._rules.values())
            for activity, shared in rules.shared.items()
            for tenant, amount in shared.take_demand().items()
        }

    def tenant_limit(self, key: LimitKey) -> float:
        """Return the tokens per second of a limit in the whole cluster; 0 without such a limit."""
        activity, tenant = key
        shared = self._of(tenant).shared.get(activity)
        return 0.0 if shared is None else shared.rate

    def divide(self, nodes: int) -> None:
        """Give this node an equal part of the limits of tenants without a share of their own."""
        for rules in (self._common_rules, *self._rules.values()):
            for shared in rules.shared.values():
                shared.divide(nodes)

    def set_share(self, key: LimitKey, share: float | None) -> None:
        """Set this node's share of a tenant's limit; None is the equal part."""
        activity, tenant = key
        shared = self._of(tenant).shared.get(activity)
        if shared is not None:
            shared.set_share(tenant, share, self._clock.monotonic())

    # --- commands of clients ---

    def command(self, session: Session, now: float) -> None:
        """Charge any command, in addition to the connection's own limit.

        A command that is refused later is charged too, because it has cost the server.
        """
        rules, key = session.rules.commands, session.key
        if rules and (excess := ask(rules, (None, key, None, key[0]), 1, now)):
            raise self._excess(excess, COMMANDS)

    def typing(self, connection: Connection, session: Session, room: str) -> None:
        self._in_room(session.rules.typing, connection, session, room, TYPING)

    def signal(self, connection: Connection, session: Session, room: str) -> None:
        self._in_room(session.rules.signals, connection, session, room, SIGNALS)
        self._usage.of(session.tenant).sends += 1

    def send(self, connection: Connection, session: Session, room: str) -> None:
        self._in_room(session.rules.sends, connection, session, room, SENDS)
        self._usage.of(session.tenant).sends += 1

    def signal_to_user(self, connection: Connection, session: Session) -> None:
        keys = connection.id, session.key, None, session.tenant
        self._ask(session.rules.signals_to_users, keys, 1, SIGNALS)
        self._usage.of(session.tenant).sends += 1

    def watch(self, connection: Connection, session: Session, users: int) -> None:
        """Charge for users to watch or query."""
        keys = connection.id, session.key, None, session.tenant
        self._ask(session.rules.watches, keys, users, WATCHES)

    def _in_room(
        self, rules: tuple[BucketRule, ...], connection: Connection, session: Session, room: str, what: str
    ) -> None:
        if rules:
            key = session.key
            keys = connection.id, key, (key[0], room), key[0]
            if excess := ask(rules, keys, 1, self._clock.monotonic()):
                raise self._excess(excess, what, room)

    # --- clients of foreign protocols without a user ---

    def command_without_user(self, connection: Connection, tenant: str) -> None:
        """Charge a command to its connection, in place of a user, and to the tenant."""
        keys = None, (tenant, connection.id), None, tenant
        self._charge(tenant, self._of(tenant).commands, keys, 1, COMMANDS)

    def signal_without_user(self, tenant: str, room: str) -> None:
        """Charge a signal to its room and the tenant."""
        self._app(tenant, self._of(tenant).app_signals, 1, SIGNALS, room)

    # --- requests of apps by HTTP ---

    def app_message(self, tenant: str, room: str) -> None:
        self._app(tenant, self._of(tenant).app_messages, 1, SENDS, room)

    def app_notifications(self, tenant: str, count: int) -> None:
        what = "messages and notifications"
        self._app(tenant, self._of(tenant).app_notifications, count, what)

    def app_signal(self, tenant: str, room: str | None) -> None:
        of = self._of(tenant)
        rules = of.app_signals_to_users if room is None else of.app_signals
        self._app(tenant, rules, 1, SIGNALS, room)

    def app_query(self, tenant: str, users: int) -> None:
        """Charge for users to query."""
        self._charge(tenant, self._of(tenant).app_queries, (None, None, None, tenant), users, WATCHES)

    def charge_app_read(self, tenant: str, users: int) -> None:
        """Charge for users that were read, even if more than the remaining tokens."""
        owe(self._of(tenant).app_queries, (None, None, None, tenant), users, self._clock.monotonic())

    def app_request(self, tenant: str | None, key: str) -> None:
        """Charge a request that has no limit of its own to its API key. `tenant` is None for an operator's key."""
        rules = self._common_rules if tenant is None else self._of(tenant)
        self._charge(tenant, rules.app_requests, (None, None, None, tenant or "", (tenant, key)), 1, REQUESTS)

    def _app(self, tenant: str, rules: tuple[BucketRule, ...], amount: int, what: str, room: str | None = None) -> None:
        self._charge(tenant, rules, (None, None, (tenant, room), tenant), amount, what, room or "")
        self._usage.of(tenant).sends += amount

    def _charge(
        self,
        tenant: str | None,
        rules: tuple[BucketRule, ...],
        keys: tuple[Hashable, ...],
        amount: int,
        what: str,
        room: str = "",
    ) -> None:
        try:
            self._ask(rules, keys, amount, what, room)
        except Refused:
            if tenant is not None:
                self._usage.of(tenant).refused += amount
            raise

    def _ask(
        self, rules: tuple[BucketRule, ...], keys: tuple[Hashable, ...], amount: int, what: str, room: str = ""
    ) -> None:
        if rules and (excess := ask(rules, keys, amount, self._clock.monotonic())):
            raise self._excess(excess, what, room)

    # --- refusals ---

    def over(self, limit: CommandLimit, wait_s: float) -> Refused:
        """Return the refusal for a command over the connection's own limit."""
        self._metrics.realtime_rate_limited_connection_total += 1
        return _refused(f"this connection sends more than {limit.rate:g} {COMMANDS}/s", wait_s)

    def _excess(self, excess: Excess, what: str, room: str = "") -> Refused:
        much = f"more than {excess.rate} {what}/s"
        if excess.at == CONNECTION:
            self._metrics.realtime_rate_limited_connection_total += 1
            return _refused(f"this connection sends {much}", excess.wait_s)
        if excess.at == USER:
            self._metrics.realtime_rate_limited_user_total += 1
            return _refused(f"this user's devices together send {much}", excess.wait_s)
        if excess.at == ROOM:
            self._metrics.realtime_rate_limited_room_total += 1
            return _refused(f"room `{room}` receives {much}", excess.wait_s)
        if excess.at == KEY:
            self._metrics.realtime_rate_limited_key_total += 1
            return _refused(f"this API key sends {much}", excess.wait_s)
        self._metrics.realtime_rate_limited_tenant_total += 1
        return _refused(f"this tenant sends {much}", excess.wait_s)


def _refused(said: str, wait_s: float) -> Refused:
    wait_ms = ceil(wait_s * 1000)
    return Refused(Err.RATE_LIMITED, f"{said}; retry after {wait_ms} ms", retry_in_ms=wait_ms)


def _shown(quota: Quota) -> Limits:
    rate, burst = quota.commands if quota.enabled else (0, 0)
    return Limits(
        frame_bytes=MAX_FRAME,
        commands_per_s=rate,
        watches=quota.watches,
        rooms=quota.rooms,
        commands_burst=burst,
        typing_per_s=quota.least("typing"),
        signals_per_s=quota.least("signals"),
        sends_per_s=quota.least("sends"),
        watches_per_s=quota.least("watches"),
        room_signals_per_s=quota.rate("room", "signals"),
        room_sends_per_s=quota.rate("room", "sends"),
    )
