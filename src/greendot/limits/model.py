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


# One limit: the index of its key among the keys of a request, its buckets, seconds until a token returns, and seconds
# until an empty bucket is full. A plain tuple, because it is unpacked for every command.
BucketRule = tuple[int, Buckets, float, float]


class Excess(NamedTuple):
    """Exceeded limit with the longest wait."""

    at: int  # key index of the rule
    rate: int  # tokens per second
    wait_s: float


def make_rule(at: int, buckets: Buckets, rate: float, burst_s: float) -> BucketRule:
    """Return a rule of `rate` tokens per second, with a burst of `burst_s` seconds' worth, but at least one token."""
    return at, buckets, 1 / rate, max(burst_s, 1 / rate) + TINY_S


def ask(rules: Sequence[BucketRule], keys: Sequence[Hashable], amount: int, now: float) -> Excess | None:
    """Take `amount` tokens from the bucket of every rule, or from none and return the exceeded limit.

    More tokens than a bucket can hold are granted when it is full. The bucket then owes the rest, and the next request
    waits.
    """
    for at, buckets, gap_s, span_s in rules:
        key = keys[at]
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
    for at, buckets, gap_s, _ in rules:
        key = keys[at]
        full_at = buckets.get(key)
        if full_at is None:
            buckets.begin(key, now + gap_s * amount, now)
        else:
            buckets[key] = max(full_at, now) + gap_s * amount


def _give_back(rules: Sequence[BucketRule], keys: Sequence[Hashable], amount: int, until: Buckets) -> None:
    """Return the tokens taken before the bucket `until` refused: a refused request costs nothing."""
    for at, buckets, gap_s, _ in rules:
        if buckets is until:
            return
        buckets[keys[at]] -= gap_s * amount


def _longest(rules: Sequence[BucketRule], keys: Sequence[Hashable], amount: int, now: float) -> Excess:
    found = []
    for at, buckets, gap_s, span_s in rules:
        missing_s = buckets.get(keys[at], now) - now
        found.append(Excess(at, round(1 / gap_s), missing_s - max(0.0, span_s - gap_s * amount)))
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
    """Rules of a tenant, by activity."""

    __slots__ = (
        "app_messages",
        "app_notifications",
        "app_queries",
        "app_requests",
        "app_signals",
        "app_signals_to_users",
        "commands",
        "sends",
        "signals",
        "signals_to_users",
        "typing",
        "watches",
    )

    def __init__(self, quota: Quota, buckets: AllBuckets) -> None:
        def rules(activity: LimitedActivity, *places: int) -> tuple[BucketRule, ...]:
            rates = [(at, SCOPES[at], quota.rate(SCOPES[at], activity)) for at in places]
            return tuple(
                make_rule(at, buckets[scope, activity], rate, quota.burst_s) for at, scope, rate in rates if rate
            )

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
        self.app_requests = rules("requests", TENANT, KEY)


def all_buckets() -> AllBuckets:
    """Return the buckets of a node. All tenants share them: keys contain the tenant."""
    return {(scope, activity): Buckets() for scope in SCOPES for activity in ACTIVITIES}


NO_RULES = TenantRules(Quota(False, (1, 1), 1.0, {}, 1, 1), {})
