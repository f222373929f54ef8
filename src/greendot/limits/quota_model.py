"""What a tenant is granted, as limits of its connections, users and rooms, and of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from greendot.limits.model import Buckets, Rule, make_rule

Scope = Literal["connection", "user", "room", "tenant", "key"]
Activity = Literal["commands", "typing", "signals", "sends", "watches", "requests"]
SCOPES: tuple[Scope, ...] = ("connection", "user", "room", "tenant", "key")
ACTIVITIES: tuple[Activity, ...] = ("commands", "typing", "signals", "sends", "watches", "requests")
CONNECTION, USER, ROOM, TENANT, KEY = range(5)  # where each has its key when rules are asked

AllBuckets = Mapping[tuple[Scope, Activity], Buckets]


class Quota(Struct, frozen=True):
    """From the settings."""

    enabled: bool  # the rates; counts always hold
    commands: tuple[int, int]  # of a connection, a second and at once
    burst_s: float  # what comes in so long at a rate below may come at once
    rates: Mapping[tuple[Scope, Activity], int]  # a second; 0: no limit
    watches: int  # per connection
    rooms: int  # per connection
    connections: tuple[int, int] = (0, 0)  # of a user and of the tenant; 0: no limit

    def rate(self, scope: Scope, activity: Activity) -> int:
        return self.rates.get((scope, activity), 0) if self.enabled else 0

    def least(self, activity: Activity) -> int:
        """What one client may do of it a second, 0 if there is no limit."""
        rates = self.rate("connection", activity), self.rate("user", activity)
        return min((rate for rate in rates if rate), default=0)


class Rules:
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
        def rules(activity: Activity, *places: int) -> tuple[Rule, ...]:
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


NO_RULES = Rules(Quota(False, (1, 1), 1.0, {}, 1, 1), {})
