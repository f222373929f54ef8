"""Rate limits of tenants that nodes share: parts of this node, demand, and tokens when a share changes."""

from __future__ import annotations

import pytest

from greendot.limits.model import (
    FOLLOWS_S,
    TENANT,
    TINY_S,
    BucketRule,
    Buckets,
    Excess,
    Quota,
    SharedRate,
    TenantRules,
    all_buckets,
    ask,
    make_rule,
    owe,
)

NOW = 1_000_000.0
KEYS = (None, None, None, "acme")


def shared_rule(rate: float = 100.0, burst_s: float = 2.0) -> tuple[SharedRate, BucketRule]:
    buckets = Buckets()
    shared = SharedRate(buckets, rate, burst_s)
    return shared, (*make_rule(TENANT, buckets, rate, burst_s)[:4], shared)


def admitted(rule: BucketRule, tries: int, now: float = NOW) -> int:
    return sum(ask([rule], KEYS, 1, now) is None for _ in range(tries))


def test_a_node_alone_has_the_whole_limit() -> None:
    _, rule = shared_rule()
    assert admitted(rule, 500) == 200
    assert admitted(rule, 500, NOW + 1) == 100


def test_several_nodes_have_an_equal_part_of_rate_and_burst() -> None:
    shared, rule = shared_rule()
    shared.divide(4)
    assert admitted(rule, 500) == 50
    assert admitted(rule, 500, NOW + 1) == 25
    shared.divide(1)
    assert admitted(rule, 500, NOW + 10) == 200


def test_a_share_is_of_one_tenant() -> None:
    shared, rule = shared_rule()
    shared.divide(4)
    shared.set_share("acme", 0.5, NOW)
    assert shared.pace("acme") == (1 / 50, 2 + TINY_S)
    assert shared.pace("other") == (1 / 25, 2 + TINY_S)
    shared.set_share("acme", None, NOW)
    assert shared.pace("acme") == shared.pace("other")
    assert admitted(rule, 500, NOW + 10) == 50


def test_a_larger_share_adds_no_tokens_at_once() -> None:
    shared, rule = shared_rule()
    shared.divide(10)
    shared.set_share("acme", 1.0, NOW)
    assert admitted(rule, 500) == 20
    assert admitted(rule, 500, NOW + 1) == 100
    assert admitted(rule, 500, NOW + 10) == 200


def test_a_smaller_share_keeps_tokens_up_to_its_burst() -> None:
    shared, rule = shared_rule()
    assert admitted(rule, 185) == 185  # 15 are left
    shared.set_share("acme", 0.1, NOW)
    assert admitted(rule, 50) == 15
    full, rule = shared_rule()
    assert admitted(rule, 1) == 1
    full.set_share("acme", 0.1, NOW)
    assert admitted(rule, 50) == 20


@pytest.mark.parametrize("share", [1.0, 0.5, 0.01])
def test_a_debt_stays_a_debt_of_as_many_tokens(share: float) -> None:
    shared, rule = shared_rule()
    owe([rule], KEYS, 300, NOW)  # 100 more than the burst
    shared.set_share("acme", share, NOW)
    assert admitted(rule, 1, NOW + 100 / (100 * share)) == 0
    assert admitted(rule, 1, NOW + 101.001 / (100 * share)) == 1


def test_a_share_that_does_not_change_changes_no_bucket() -> None:
    shared, rule = shared_rule()
    shared.set_share("acme", 0.3, NOW)
    taken = admitted(rule, 20)
    for _ in range(100):
        shared.set_share("acme", 0.3, NOW)
    assert taken + admitted(rule, 500) == 60


def test_demand_is_all_that_is_requested_also_what_is_refused() -> None:
    shared, rule = shared_rule()
    admitted(rule, 500)
    ask([rule], (None, None, None, "other"), 7, NOW)
    owe([rule], KEYS, 3, NOW)
    assert shared.take_demand() == {"acme": 503, "other": 7}
    assert shared.take_demand() == {}


def test_what_another_limit_refuses_is_no_demand() -> None:
    shared, rule = shared_rule()
    narrow = make_rule(0, Buckets(), 1.0, 1.0)
    assert [ask([narrow, rule], ("ann", None, None, "acme"), 1, NOW) is None for _ in range(3)] == [True, False, False]
    assert shared.take_demand() == {"acme": 1}


def test_a_limit_after_the_shared_one_gives_its_tokens_back() -> None:
    shared, rule = shared_rule()
    shared.set_share("acme", 0.1, NOW)
    narrow = make_rule(0, Buckets(), 1.0, 1.0)
    for _ in range(100):
        ask([rule, narrow], ("ann", None, None, "acme"), 1, NOW)
    assert admitted(rule, 100) == 19


def test_a_refusal_names_the_limit_of_the_cluster_and_a_wait_in_which_the_share_follows() -> None:
    shared, rule = shared_rule()
    shared.set_share("acme", 0.001, NOW)
    assert admitted(rule, 2) == 1
    assert ask([rule], KEYS, 1, NOW) == Excess(TENANT, 100, FOLLOWS_S)
    shared.set_share("acme", 0.5, NOW)
    found = ask([rule], KEYS, 1, NOW)
    assert found is not None
    assert found.wait_s == pytest.approx(1 / 50, abs=1e-4)


def test_a_long_wait_is_that_of_the_whole_limit() -> None:
    shared, rule = shared_rule()
    owe([rule], KEYS, 1_200, NOW)
    shared.set_share("acme", 0.5, NOW)
    found = ask([rule], KEYS, 1, NOW)
    assert found is not None
    assert found.wait_s == pytest.approx(10, abs=0.02)


def test_only_limits_of_tenants_are_shared_and_all_rules_of_an_activity_share_one() -> None:
    rates = {(scope, "sends"): 5 for scope in ("connection", "user", "room", "tenant")}
    quota = Quota(True, (50, 200), 4.0, rates, 10, 5)  # type: ignore[arg-type]
    rules = TenantRules(quota, all_buckets(), clustered=True)
    assert [rule[4] for rule in rules.sends] == [None, None, None, rules.shared["sends"]]
    assert rules.app_messages[-1][4] is rules.app_notifications[-1][4] is rules.shared["sends"]
    assert [*rules.shared] == ["sends"]
    alone = TenantRules(quota, all_buckets())
    assert (alone.shared, {rule[4] for rule in alone.sends}) == ({}, {None})
