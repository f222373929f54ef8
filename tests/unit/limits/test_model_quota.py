"""Rate rules of a tenant, derived from its quota."""

from __future__ import annotations

import pytest

from greendot.limits.model import (
    ACTIVITIES,
    CONNECTION,
    KEY,
    NO_RULES,
    ROOM,
    SCOPES,
    TENANT,
    USER,
    BucketRule,
    Quota,
    TenantRules,
    all_buckets,
)

EVERYTHING = {(scope, activity): 10 for scope in SCOPES for activity in ACTIVITIES}


def quota(enabled: bool = True, **rates: int) -> Quota:
    named = {(scope, activity): rates.get(f"{scope}_{activity}", 0) for scope, activity in EVERYTHING}
    return Quota(enabled, (50, 200), 4.0, named, 10, 5)


def places(rules: tuple[BucketRule, ...]) -> list[int]:
    return [at for at, *_ in rules]


def test_each_activity_is_limited_where_it_happens() -> None:
    rules = TenantRules(Quota(True, (50, 200), 4.0, EVERYTHING, 10, 5), all_buckets())
    assert places(rules.commands) == [USER, TENANT]
    assert places(rules.watches) == places(rules.signals_to_users) == [CONNECTION, USER, TENANT]
    for everywhere in (rules.typing, rules.signals, rules.sends):
        assert places(everywhere) == [CONNECTION, USER, ROOM, TENANT]
    assert places(rules.app_messages) == places(rules.app_signals) == [ROOM, TENANT]
    assert places(rules.app_notifications) == places(rules.app_signals_to_users) == [TENANT]
    assert places(rules.app_queries) == [TENANT]
    assert places(rules.app_requests) == [KEY, TENANT]


def test_a_rate_of_0_costs_nothing_to_ask() -> None:
    rules = TenantRules(quota(room_sends=5), all_buckets())
    assert places(rules.sends) == [ROOM]
    assert rules.signals == rules.commands == rules.watches == ()


def test_an_app_and_its_clients_have_the_same_room_and_kinds_of_activity_have_not() -> None:
    rules = TenantRules(quota(room_sends=5, room_signals=5), all_buckets())
    assert rules.sends[0][1] is rules.app_messages[0][1]
    assert rules.sends[0][1] is not rules.signals[0][1]


def test_tenants_share_the_tables_whatever_their_numbers() -> None:
    buckets = all_buckets()
    one, other = TenantRules(quota(user_sends=5), buckets), TenantRules(quota(user_sends=50), buckets)
    assert one.sends[0][1] is other.sends[0][1]
    assert (one.sends[0][2], other.sends[0][2]) == (1 / 5, 1 / 50)


@pytest.mark.parametrize(
    "rules", [NO_RULES, TenantRules(quota(False, **dict.fromkeys(("user_sends", "room_sends"), 5)), {})]
)
def test_switched_off_there_are_none(rules: TenantRules) -> None:
    assert all(getattr(rules, name) == () for name in TenantRules.__slots__ if name != "shared")
    assert rules.shared == {}


def test_a_client_receives_the_lowest_of_its_own_limits() -> None:
    assert quota(connection_sends=5, user_sends=7).least("sends") == 5
    assert quota(connection_sends=9, user_sends=7).least("sends") == 7
    assert quota(user_sends=7).least("sends") == 7
    assert quota(room_sends=7, tenant_sends=7).least("sends") == 0
    assert quota(False, user_sends=7).least("sends") == 0


def test_what_is_not_granted_a_number_has_no_limit() -> None:
    bare = Quota(True, (50, 200), 4.0, {}, 10, 5)
    assert (bare.connections, bare.rate("user", "sends"), bare.least("sends")) == ((0, 0), 0, 0)
