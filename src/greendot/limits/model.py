"""Token buckets by key: how much users, rooms and tenants may ask for.

A bucket is kept as one number, the time at which it will be full again. A full bucket is the same as none: so a key
that asks for nothing costs nothing, and no timer is needed to fill or to forget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

ROOMY = 1_000  # up to so many buckets nobody looks for full ones
LOOKED_AT = 2  # old buckets, for each new one: what is forgotten keeps up with what comes
TINY_S = 1e-6  # sums of floats must not cost a token


class Buckets(dict[Hashable, float]):
    """When each bucket of one limit is full again, by its key."""

    __slots__ = ("_in_turn",)

    def __init__(self) -> None:
        super().__init__()
        self._in_turn: deque[Hashable] = deque()  # every key once, the one not looked at for longest first

    def begin(self, key: Hashable, full_at: float, now: float) -> None:
        """A key that has no bucket gets one, and some that are full lose theirs."""
        self[key] = full_at
        self._in_turn.append(key)
        if len(self) > ROOMY:
            for _ in range(LOOKED_AT):
                oldest = self._in_turn.popleft()
                if self[oldest] <= now:
                    del self[oldest]
                else:
                    self._in_turn.append(oldest)


# One limit: where its key is among those asked for, its buckets, in how many seconds a token comes back, and in how
# many an empty bucket is full. A plain tuple, and no other: it is unpacked for every command.
BucketRule = tuple[int, Buckets, float, float]


class Excess(NamedTuple):
    """Why something is not let through: the limit that has it wait longest."""

    at: int  # of the rule
    rate: int  # tokens a second
    wait_s: float


def make_rule(at: int, buckets: Buckets, rate: float, burst_s: float) -> BucketRule:
    """`rate` tokens a second, and as many as come in `burst_s` at once, but at least one."""
    return at, buckets, 1 / rate, max(burst_s, 1 / rate) + TINY_S


def ask(rules: Sequence[BucketRule], keys: Sequence[Hashable], amount: int, now: float) -> Excess | None:
    """Take `amount` tokens from the bucket of every rule, or from none and say why.

    More than a bucket can hold is let through when it is full. It then owes the rest, and the next one waits.
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
    """Take `amount` tokens though there may be fewer: what was done costs more than was asked for, and who asks next
    waits until it is paid."""
    for at, buckets, gap_s, _ in rules:
        key = keys[at]
        full_at = buckets.get(key)
        if full_at is None:
            buckets.begin(key, now + gap_s * amount, now)
        else:
            buckets[key] = max(full_at, now) + gap_s * amount


def _give_back(rules: Sequence[BucketRule], keys: Sequence[Hashable], amount: int, until: Buckets) -> None:
    """Nobody pays for what one refused: those asked before it get their tokens back."""
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
CONNECTION, USER, ROOM, TENANT, KEY = range(5)  # where each has its key when rules are asked

AllBuckets = Mapping[tuple[LimitScope, LimitedActivity], Buckets]


class Quota(Struct, frozen=True):
    """From the settings."""

    enabled: bool  # the rates; counts always hold
    commands: tuple[int, int]  # of a connection, a second and at once
    burst_s: float  # what comes in so long at a rate below may come at once
    rates: Mapping[tuple[LimitScope, LimitedActivity], int]  # a second; 0: no limit
    watches: int  # per connection
    rooms: int  # per connection
    connections: tuple[int, int] = (0, 0)  # of a user and of the tenant; 0: no limit

    def rate(self, scope: LimitScope, activity: LimitedActivity) -> int:
        return self.rates.get((scope, activity), 0) if self.enabled else 0

    def least(self, activity: LimitedActivity) -> int:
        """What one client may do of it a second, 0 if there is no limit."""
        rates = self.rate("connection", activity), self.rate("user", activity)
        return min((rate for rate in rates if rate), default=0)


class TenantRules:
    """The limits of a tenant, by what they are asked for."""

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

        self.commands = rules("commands", USER, TENANT)  # a connection counts its own
        self.typing = rules("typing", CONNECTION, USER, ROOM, TENANT)
        self.signals = rules("signals", CONNECTION, USER, ROOM, TENANT)
        self.signals_to_users = rules("signals", CONNECTION, USER, TENANT)
        self.sends = rules("sends", CONNECTION, USER, ROOM, TENANT)
        self.watches = rules("watches", CONNECTION, USER, TENANT)
        # An app that speaks by HTTP is none of its users.
        self.app_messages = rules("sends", ROOM, TENANT)
        self.app_notifications = rules("sends", TENANT)
        self.app_signals = rules("signals", ROOM, TENANT)
        self.app_signals_to_users = rules("signals", TENANT)
        self.app_queries = rules("watches", TENANT)
        self.app_requests = rules("requests", TENANT, KEY)


def all_buckets() -> AllBuckets:
    """Those of a node, for all tenants: their keys tell them apart."""
    return {(scope, activity): Buckets() for scope in SCOPES for activity in ACTIVITIES}


NO_RULES = TenantRules(Quota(False, (1, 1), 1.0, {}, 1, 1), {})
