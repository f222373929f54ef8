"""Rate limits of a node: charged accounts, contents of a refusal, and limits of tenants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from greendot.errors import Refused
from greendot.limits.model import LimitedActivity, LimitScope, Quota
from greendot.limits.rate_limits import RateLimits
from greendot.protocol.codes import Err
from unit.node_parts import Client, NodeParts, in_virtual_time, pass_time

Rates = dict[tuple[LimitScope, LimitedActivity], int]


def quota(rates: Rates | None = None, *, enabled: bool = True, commands: tuple[int, int] = (50, 200)) -> Quota:
    return Quota(enabled, commands, 1.0, rates or {}, 100, 10, (3, 0))


def limits(parts: NodeParts, common: Quota, **tenants: Quota) -> RateLimits:
    return RateLimits(common, tenants, parts.clock, parts.metrics, parts.registry.usage)


def greeted(parts: NodeParts, rate_limits: RateLimits, user: str, **claims: Any) -> Client:
    """Make a client that has its welcome."""
    client = parts.session(user, **claims)
    rate_limits.opened(client.connection)
    rate_limits.greeted(client.connection, client.session)
    return client


def granted(times: int, act: Callable[[], None]) -> int:
    """Call `act` repeatedly and return the number of calls that were not refused."""
    count = 0
    for _ in range(times):
        try:
            act()
        except Refused:
            continue
        count += 1
    return count


# --- connections ---


@in_virtual_time
async def test_a_stranger_is_limited_also_where_users_are_not(parts: NodeParts) -> None:
    rate_limits = limits(parts, quota(enabled=False, commands=(1, 2)))
    client = parts.session("ann")
    rate_limits.opened(client.connection)
    limit = client.connection.limit
    assert limit is not None
    now = parts.clock.monotonic()
    assert [bool(limit.admit(now)) for _ in range(3)] == [False, False, True]
    rate_limits.greeted(client.connection, client.session)
    assert client.connection.limit is None


@in_virtual_time
async def test_a_tenant_with_a_quota_of_its_own_has_its_limit_from_the_welcome_on(parts: NodeParts) -> None:
    rate_limits = limits(parts, quota(commands=(1, 2)), acme=quota(commands=(1, 5)))
    client = parts.session("ann", tenant="acme")
    rate_limits.opened(client.connection)
    limit, now = client.connection.limit, parts.clock.monotonic()
    assert limit is not None
    assert not limit.admit(now)
    rate_limits.greeted(client.connection, client.session)
    assert [bool(limit.admit(now)) for _ in range(5)] == [False] * 4 + [True]
    assert (rate_limits.most_watches("acme"), rate_limits.most_connections("acme")) == (100, (3, 0))


@in_virtual_time
async def test_clients_receive_the_limits_of_their_tenant(parts: NodeParts) -> None:
    rates: Rates = {("connection", "sends"): 9, ("user", "sends"): 4, ("room", "sends"): 7, ("user", "typing"): 2}
    rate_limits = limits(parts, quota(rates), acme=quota(rates, enabled=False))
    shown = rate_limits.shown("default")
    assert (shown.commands_per_s, shown.commands_burst, shown.sends_per_s, shown.room_sends_per_s) == (50, 200, 4, 7)
    assert (shown.typing_per_s, shown.signals_per_s) == (2, 0)
    off = rate_limits.shown("acme")
    assert (off.commands_per_s, off.sends_per_s, off.watches, off.rooms) == (0, 0, 100, 10)


# --- clients ---


@in_virtual_time
async def test_the_devices_of_a_user_share_a_limit_and_users_do_not(parts: NodeParts) -> None:
    rate_limits = limits(parts, quota({("user", "commands"): 3}))
    phone, laptop, bob = (greeted(parts, rate_limits, user) for user in ("ann", "ann", "bob"))
    now = parts.clock.monotonic()
    assert granted(2, lambda: rate_limits.command(phone.session, now)) == 2
    assert granted(2, lambda: rate_limits.command(laptop.session, now)) == 1
    assert granted(3, lambda: rate_limits.command(bob.session, now)) == 3
    assert parts.metrics.realtime_rate_limited_user_total == 1


@in_virtual_time
async def test_tenants_do_not_use_up_the_limits_of_each_other(parts: NodeParts) -> None:
    rate_limits = limits(parts, quota({("tenant", "commands"): 2, ("room", "sends"): 1}))
    ann, other = greeted(parts, rate_limits, "ann"), greeted(parts, rate_limits, "ann", tenant="acme")
    now = parts.clock.monotonic()
    assert granted(3, lambda: rate_limits.command(ann.session, now)) == 2
    assert granted(3, lambda: rate_limits.command(other.session, now)) == 2
    assert granted(2, lambda: rate_limits.send(ann.connection, ann.session, "lobby")) == 1
    assert granted(2, lambda: rate_limits.send(other.connection, other.session, "lobby")) == 1
    assert parts.metrics.realtime_rate_limited_tenant_total == 2


@in_virtual_time
async def test_a_refusal_names_the_limit_and_the_time_to_wait_after_which_it_is_granted(parts: NodeParts) -> None:
    rate_limits = limits(parts, quota({("room", "sends"): 4}))
    ann = greeted(parts, rate_limits, "ann")
    assert granted(4, lambda: rate_limits.send(ann.connection, ann.session, "lobby")) == 4
    with pytest.raises(Refused) as refused:
        rate_limits.send(ann.connection, ann.session, "lobby")
    assert (refused.value.code, refused.value.retry_in_ms) == (Err.RATE_LIMITED, 250)
    assert refused.value.message == "room `lobby` receives more than 4 messages/s; retry after 250 ms"
    rate_limits.send(ann.connection, ann.session, "hall")
    await pass_time(0.25)
    rate_limits.send(ann.connection, ann.session, "lobby")


@in_virtual_time
async def test_only_what_is_granted_counts_as_sent(parts: NodeParts) -> None:
    rate_limits = limits(parts, quota({("connection", "signals"): 2, ("user", "sends"): 1}))
    ann = greeted(parts, rate_limits, "ann")
    assert granted(2, lambda: rate_limits.signal(ann.connection, ann.session, "lobby")) == 2
    assert granted(2, lambda: rate_limits.signal_to_user(ann.connection, ann.session)) == 0
    assert granted(2, lambda: rate_limits.send(ann.connection, ann.session, "lobby")) == 1
    assert granted(5, lambda: rate_limits.typing(ann.connection, ann.session, "lobby")) == 5
    assert parts.registry.usage.of("default").sends == 3
    assert parts.metrics.realtime_rate_limited_connection_total == 2


@in_virtual_time
async def test_users_watched_are_charged_one_by_one(parts: NodeParts) -> None:
    rate_limits = limits(parts, quota({("user", "watches"): 10}))
    ann = greeted(parts, rate_limits, "ann")
    rate_limits.watch(ann.connection, ann.session, 8)
    with pytest.raises(Refused) as refused:
        rate_limits.watch(ann.connection, ann.session, 3)
    assert refused.value.retry_in_ms == 100
    rate_limits.watch(ann.connection, ann.session, 2)


@in_virtual_time
async def test_a_session_without_a_welcome_is_not_limited_by_rates(parts: NodeParts) -> None:
    rate_limits, ann = limits(parts, quota({("user", "commands"): 1})), parts.session("ann")
    assert granted(5, lambda: rate_limits.command(ann.session, parts.clock.monotonic())) == 5


# --- apps ---


@in_virtual_time
async def test_messages_of_an_app_and_of_clients_share_the_limit_of_a_room(parts: NodeParts) -> None:
    rate_limits = limits(parts, quota({("room", "sends"): 2, ("user", "sends"): 1}))
    ann = greeted(parts, rate_limits, "ann")
    rate_limits.send(ann.connection, ann.session, "lobby")
    assert granted(2, lambda: rate_limits.app_message("default", "lobby")) == 1
    usage = parts.registry.usage.of("default")
    assert (usage.sends, usage.refused) == (2, 1)


@in_virtual_time
async def test_notifications_are_charged_by_their_number(parts: NodeParts) -> None:
    rate_limits = limits(parts, quota({("tenant", "sends"): 10}))
    rate_limits.app_notifications("default", 8)
    with pytest.raises(Refused):
        rate_limits.app_notifications("default", 5)
    usage = parts.registry.usage.of("default")
    assert (usage.sends, usage.refused) == (8, 5)


@in_virtual_time
async def test_a_signal_to_users_is_not_charged_to_a_room(parts: NodeParts) -> None:
    rate_limits = limits(parts, quota({("room", "signals"): 1}))
    assert granted(5, lambda: rate_limits.app_signal("default", None)) == 5
    assert granted(5, lambda: rate_limits.app_signal("default", "lobby")) == 1


@in_virtual_time
async def test_a_query_that_looked_at_more_than_it_asked_for_owes_the_rest(parts: NodeParts) -> None:
    rate_limits = limits(parts, quota({("tenant", "watches"): 10}))
    rate_limits.app_query("default", 10)
    rate_limits.charge_app_read("default", 20)
    await pass_time(1.9)
    with pytest.raises(Refused):
        rate_limits.app_query("default", 1)
    await pass_time(0.2)
    rate_limits.app_query("default", 1)


@in_virtual_time
async def test_requests_are_limited_by_key_and_an_operator_has_the_common_limits(parts: NodeParts) -> None:
    common = quota({("key", "requests"): 1})
    rate_limits = limits(parts, common, acme=quota({("key", "requests"): 3}))
    assert granted(5, lambda: rate_limits.app_request("acme", "a")) == 3
    assert granted(5, lambda: rate_limits.app_request("acme", "b")) == 3
    assert granted(5, lambda: rate_limits.app_request(None, "a")) == 1
    assert granted(5, lambda: rate_limits.app_request("default", "a")) == 1
    assert parts.metrics.realtime_rate_limited_key_total == 2 + 2 + 4 + 4
    assert [*parts.registry.usage] == ["acme", "default"]


@in_virtual_time
async def test_a_connection_over_its_own_limit_receives_the_limit_and_the_delay(parts: NodeParts) -> None:
    rate_limits = limits(parts, quota(commands=(50, 200)))
    ann = greeted(parts, rate_limits, "ann")
    assert ann.connection.limit is not None
    refused = rate_limits.over(ann.connection.limit, 0.0191)
    assert (refused.message, refused.retry_in_ms) == (
        "this connection sends more than 50 commands/s; retry after 20 ms",
        20,
    )
    assert parts.metrics.realtime_rate_limited_connection_total == 1
