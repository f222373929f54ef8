"""Token buckets by key: rate limits of users, rooms and tenants.

A bucket is stored as one number, the time at which it will be full again. A full bucket is the same as none. So a key
without requests costs nothing, and no timer is needed to fill or delete buckets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

ROOMY = 1_000  # up to so many buckets, full ones are not searched
LOOKED_AT = 2  # old buckets checked for each new one: deletions keep up with additions
FOLLOWS_S = 2.0  # time in which the share of a node follows the demand
TINY_S = 1e-6  # rounding of float sums must not cost a token


class Buckets(dict[Hashable, float]):
    """Times at which the buckets of one limit are full again, by key."""

    __slots__ = ("_in_turn",)

    def __init__(self) -> None:
        super().__init__()
        self._in_turn: deque[Hashable] = deque()  # every key once, the one checked longest ago first

    def begin(self, key: Hashable, full_at: float, now: float) -> None:
        """Create the bucket of a new key, and delete some buckets that are full."""
        self[key] = full_at
        self._in_turn.append(key)
        if len(self) > ROOMY:
            for _ in range(LOOKED_AT):
                oldest = self._in_turn.popleft()
                if self[oldest] <= now:
                    del self[oldest]
                else:
                    self._in_turn.append(oldest)


Pace = tuple[float, float]  # seconds until a token returns, and seconds until an empty bucket is full


class SharedRate:
    """Rate limit of tenants that the nodes of a cluster share: this node's part of it, and the demand on this node.

    The part is an equal one, unless the tenant has a share of its own.
    """

    __slots__ = ("_buckets", "_burst_s", "_demand", "_even", "_own", "rate")

    def __init__(self, buckets: Buckets, rate: float, burst_s: float) -> None:
        self.rate = rate  # tokens per second in the whole cluster
        self._burst_s = burst_s
        self._buckets = buckets
        self._even = _pace(rate, burst_s)
        self._own: dict[Hashable, Pace] = {}
        self._demand: dict[Hashable, int] = {}

    def pace(self, tenant: Hashable) -> Pace:
        """Return the pace of the tenant's bucket on this node."""
        return self._own.get(tenant, self._even)

    def count(self, tenant: Hashable, amount: int) -> Pace:
        """Count tokens that are requested, granted or not. Return the pace of the tenant's bucket."""
        self._demand[tenant] = self._demand.get(tenant, 0) + amount
        return self._own.get(tenant, self._even)

    def take_demand(self) -> dict[Hashable, int]:
        """Return the tokens requested by each tenant since the last call."""
        demand, self._demand = self._demand, {}
        return demand

    def divide(self, nodes: int) -> None:
        """Give tenants without a share of their own an equal part on each node."""
        self._even = _pace(self.rate / nodes, self._burst_s)

    def set_share(self, tenant: Hashable, share: float | None, now: float) -> None:
        """Change the part of a tenant; None is the equal part.

        The bucket keeps its tokens, up to its new size. A larger share adds no tokens at once: otherwise demand that
        moves from node to node would get a burst on each of them.
        """
        gap_s, span_s = self.pace(tenant)
        if share is None:
            self._own.pop(tenant, None)
        else:
            self._own[tenant] = _pace(self.rate * share, self._burst_s)
        new_gap_s, new_span_s = self.pace(tenant)
        full_at = self._buckets.get(tenant)
        tokens = (span_s - max(0.0, (full_at or now) - now)) / gap_s
        missing_s = new_span_s - new_gap_s * tokens
        if full_at is not None:
            self._buckets[tenant] = now + missing_s
        elif missing_s > 0:
            self._buckets.begin(tenant, now + missing_s, now)


def _pace(rate: float, burst_s: float) -> Pace:
    return 1 / rate, max(burst_s, 1 / rate) + TINY_S


# One limit: the index of its key among the keys of a request, its buckets, and their pace. If nodes share the limit,
# the last field has the pace of each tenant. A plain tuple, because it is unpacked for every command.
BucketRule = tuple[int, Buckets, float, float, SharedRate | None]


class Excess(NamedTuple):
    """Exceeded limit with the longest wait."""

    at: int  # key index of the rule
    rate: int  # tokens per second
    wait_s: float


def make_rule(at: int, buckets: Buckets, rate: float, burst_s: float) -> BucketRule:
    """Return a rule of `rate` tokens per second, with a burst of `burst_s` seconds' worth, but at least one token."""
    return at, buckets, *_pace(rate, burst_s), None


def ask(rules: Sequence[BucketRule], keys: Sequence[Hashable], amount: int, now: float) -> Excess | None:
    """Take `amount` tokens from the bucket of every rule, or from none and return the exceeded limit.

    More tokens than a bucket can hold are granted when it is full. The bucket then owes the rest, and the next request
    waits.
    """
    for at, buckets, gap_s, span_s, shared in rules:
        key = keys[at]
        if shared is not None:
            gap_s, span_s = shared.count(key, amount)
        full_at = buckets.get(key)
        if full_at is None:
            buckets.begin(key, now + gap_s * amount, now)
        elif full_at <= now:
            buckets[key] = now + gap_s * amount
        elif full_at - now <= span_s - gap_s * amount:
            buckets[key] = full_at + gap_s * amount
        else:
            _give_back(rules, keys, amount, until=buckets)
            return _longest(rules, keys, amount, now)
    return None


def owe(rules: Sequence[BucketRule], keys: Sequence[Hashable], amount: int, now: float) -> None:
    """Take `amount` tokens even if there are fewer.

    The work cost more than was asked for. The next request waits until the debt is paid.
    """
    for at, buckets, gap_s, _, shared in rules:
        key = keys[at]
        if shared is not None:
            gap_s, _ = shared.count(key, amount)
        full_at = buckets.get(key)
        if full_at is None:
            buckets.begin(key, now + gap_s * amount, now)
        else:
            buckets[key] = max(full_at, now) + gap_s * amount


def _give_back(rules: Sequence[BucketRule], keys: Sequence[Hashable], amount: int, until: Buckets) -> None:
    """Return the tokens taken before the bucket `until` refused: a refused request costs nothing."""
    for at, buckets, gap_s, _, shared in rules:
        if buckets is until:
            return
        if shared is not None:
            gap_s, _ = shared.pace(keys[at])
        buckets[keys[at]] -= gap_s * amount


def _longest(rules: Sequence[BucketRule], keys: Sequence[Hashable], amount: int, now: float) -> Excess:
    found = []
    for at, buckets, gap_s, span_s, shared in rules:
        rate = 1 / gap_s
        if shared is not None:
            gap_s, span_s = shared.pace(keys[at])
        missing_s = buckets.get(keys[at], now) - now
        wait_s = missing_s - max(0.0, span_s - gap_s * amount)
        if wait_s > FOLLOWS_S and shared is not None:
            wait_s = max(FOLLOWS_S, wait_s / gap_s / rate)  # a small share grows with the demand
        found.append(Excess(at, round(rate), wait_s))
    return max(found, key=lambda excess: excess.wait_s)


LimitScope = Literal["connection", "user", "room", "tenant", "key"]
LimitedActivity = Literal["commands", "typing", "signals", "sends", "watches", "requests"]
SCOPES: tuple[LimitScope, ...] = ("connection", "user", "room", "tenant", "key")
ACTIVITIES: tuple[LimitedActivity, ...] = ("commands", "typing", "signals", "sends", "watches", "requests")
CONNECTION, USER, ROOM, TENANT, KEY = range(5)  # index of each scope's key in a request

AllBuckets = Mapping[tuple[LimitScope, LimitedActivity], Buckets]


class Quota(Struct, frozen=True):
    """Quota of a tenant, or of all tenants, from the settings."""

    enabled: bool  # applies to the rates; counts always hold
    commands: tuple[int, int]  # of a connection, per second and at once
    burst_s: float  # a burst may have so many seconds' worth of the rates below
    rates: Mapping[tuple[LimitScope, LimitedActivity], int]  # per second; 0: no limit
    watches: int  # per connection
    rooms: int  # per connection
    connections: tuple[int, int] = (0, 0)  # of a user and of the tenant; 0: no limit

    def rate(self, scope: LimitScope, activity: LimitedActivity) -> int:
        return self.rates.get((scope, activity), 0) if self.enabled else 0

    def least(self, activity: LimitedActivity) -> int:
        """Return the rate at which one client may do the activity per second; 0 without a limit."""
        rates = self.rate("connection", activity), self.rate("user", activity)
        return min((rate for rate in rates if rate), default=0)


class TenantRules:
    """Rules of a tenant, by activity. With `clustered`, other nodes share the limits of tenants."""

    __slots__ = (
        "app_messages",
        "app_notifications",
        "app_queries",
        "app_requests",
        "app_signals",
        "app_signals_to_users",
        "commands",
        "sends",
        "shared",
        "signals",
        "signals_to_users",
        "typing",
        "watches",
    )

    def __init__(self, quota: Quota, buckets: AllBuckets, *, clustered: bool = False) -> None:
        def rules(activity: LimitedActivity, *places: int) -> tuple[BucketRule, ...]:
            rates = [(at, SCOPES[at], quota.rate(SCOPES[at], activity)) for at in places]
            made = [make_rule(at, buckets[scope, activity], rate, quota.burst_s) for at, scope, rate in rates if rate]
            return tuple((*rule[:4], self.shared.get(activity)) if rule[0] == TENANT else rule for rule in made)

        limited = ((activity, quota.rate("tenant", activity)) for activity in ACTIVITIES if clustered)
        self.shared: dict[str, SharedRate] = {
            a: SharedRate(buckets["tenant", a], rate, quota.burst_s) for a, rate in limited if rate
        }
        # The tenant comes last: work that another limit refuses is no demand of the tenant.
        self.commands = rules("commands", USER, TENANT)  # each connection has its own limit besides
        self.typing = rules("typing", CONNECTION, USER, ROOM, TENANT)
        self.signals = rules("signals", CONNECTION, USER, ROOM, TENANT)
        self.signals_to_users = rules("signals", CONNECTION, USER, TENANT)
        self.sends = rules("sends", CONNECTION, USER, ROOM, TENANT)
        self.watches = rules("watches", CONNECTION, USER, TENANT)
        # Requests of the app by HTTP are not charged to a user.
        self.app_messages = rules("sends", ROOM, TENANT)
        self.app_notifications = rules("sends", TENANT)
        self.app_signals = rules("signals", ROOM, TENANT)
        self.app_signals_to_users = rules("signals", TENANT)
        self.app_queries = rules("watches", TENANT)
        self.app_requests = rules("requests", KEY, TENANT)


def all_buckets() -> AllBuckets:
    """Return the buckets of a node. All tenants share them: keys contain the tenant."""
    return {(scope, activity): Buckets() for scope in SCOPES for activity in ACTIVITIES}


NO_RULES = TenantRules(Quota(False, (1, 1), 1.0, {}, 1, 1), {})
