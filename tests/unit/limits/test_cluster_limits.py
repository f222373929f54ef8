"""Exchange of demand between nodes: contents of reports, their effect on this node, and nodes that come and go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greendot.engine.messages import ALL_NODES, LimitReport, Message
from greendot.errors import Refused
from greendot.limits.claim_model import BEGINNING, BEGINNING_S
from greendot.limits.cluster_limits import ClusterLimits
from greendot.limits.connection_limits import ConnectionLimits, TooManyConnections
from greendot.limits.model import Quota
from greendot.limits.rate_limits import RateLimits
from greendot.limits.share_model import CUT_OFF_S, PERIOD_S
from greendot.protocol.commands import Hello
from unit.node_parts import NodeParts, in_virtual_time, pass_time

LIMIT = 100
OWN = 40  # limit of tenant `small`


def quota(rate: int) -> Quota:
    return Quota(
        True, (1_000, 1_000), 1.0, {("tenant", "sends"): rate, ("tenant", "requests"): rate}, 10, 10, (0, rate)
    )


class Lab:
    """Cluster limits of a node, and the reports that it publishes."""

    def __init__(self, parts: NodeParts, *, echo: bool = True) -> None:
        self.parts = parts
        self.echo = echo  # reports come back
        self.rate_limits = RateLimits(
            quota(LIMIT), {"small": quota(OWN)}, parts.clock, parts.metrics, parts.registry.usage, clustered=True
        )
        self.connection_limits = ConnectionLimits(parts.registry, self.rate_limits)
        self.limits = ClusterLimits(
            parts.engine, self.rate_limits, self.connection_limits, parts.context.timers, lambda: parts.incarnation
        )

    def request(self, count: int, tenant: str = "acme") -> int:
        """Make requests and return the number that is permitted."""
        permitted = 0
        for _ in range(count):
            try:
                self.rate_limits.app_notifications(tenant, 1)
            except Refused:
                continue
            permitted += 1
        return permitted

    def connect(self, count: int) -> int:
        """Connect clients of tenant `acme` and return the number that is accepted."""
        for number in range(count):
            client = self.parts.client()
            try:
                with self.connection_limits.entering(
                    client.connection, self.parts.grants("ann", tenant="acme"), Hello()
                ):
                    pass
            except TooManyConnections:
                return number
        return count

    def receive(self, message: Message) -> None:
        self.limits.bus[type(message)](ALL_NODES, message)

    def reported(self, node: str, demand: float, tenant: str = "acme") -> None:
        self.receive(LimitReport(node, [("sends", tenant, demand)]))

    def reports(self) -> list[Any]:
        """Return the reports since the last call."""
        found = [message for topic, message in self.parts.engine.published if topic == ALL_NODES]
        self.parts.engine.published.clear()
        return found

    async def turn(self) -> list[Any]:
        """Let a period pass, and return the report."""
        await pass_time(PERIOD_S)
        found = self.reports()
        for message in found if self.echo else []:
            self.receive(message)
        return found


async def lab(parts: NodeParts, *others: str, echo: bool = True) -> Lab:
    for name in others:
        parts.engine.other_node(name)
    made = Lab(parts, echo=echo)
    await made.limits.start()
    return made


@in_virtual_time
async def test_a_node_alone_reports_nothing_and_has_the_whole_limit(parts: NodeParts) -> None:
    node = await lab(parts)
    assert node.request(500) == LIMIT
    assert await node.turn() == []
    assert node.request(500) == LIMIT * PERIOD_S


@in_virtual_time
async def test_a_node_begins_with_an_equal_part_and_reports_demand_that_matters(parts: NodeParts) -> None:
    node = await lab(parts, "OTHR")
    assert node.request(500) == LIMIT / 2
    node.request(2, "quiet")
    assert await node.turn() == [LimitReport(parts.incarnation, [("sends", "acme", LIMIT)])]


@in_virtual_time
async def test_each_tenant_has_its_own_limit(parts: NodeParts) -> None:
    node = await lab(parts, "OTHR")
    assert node.request(500, "small") == OWN / 2
    assert await node.turn() == [LimitReport(parts.incarnation, [("sends", "small", OWN)])]


@in_virtual_time
async def test_requests_of_operators_have_a_limit_too(parts: NodeParts) -> None:
    node = await lab(parts, "OTHR")
    for _ in range(30):
        node.rate_limits.app_request(None, "key")
    (report,) = await node.turn()
    assert report.rates == [("requests", "", pytest.approx(30 / PERIOD_S, rel=0.01))]


async def rate(node: Lab) -> float:
    """Return the permitted requests per second, with more demand than that, in two periods."""
    permitted = 0
    node.request(500)
    for _ in range(20):
        await asyncio.sleep(PERIOD_S / 10)
        permitted += node.request(50)
    return permitted / (2 * PERIOD_S)


@in_virtual_time
async def test_the_share_follows_the_reports_of_other_nodes(parts: NodeParts) -> None:
    node = await lab(parts, "OTHR")
    for _ in range(6):
        node.reported("OTHR", LIMIT)
        node.request(500)
        await node.turn()
    assert await rate(node) == pytest.approx(LIMIT / 2, rel=0.1)
    for _ in range(6):
        node.reported("OTHR", 1.0)
        node.request(500)
        await node.turn()
    node.reported("OTHR", 1.0)
    assert await rate(node) == pytest.approx(LIMIT, rel=0.1)


@in_virtual_time
async def test_a_node_joins_and_dies(parts: NodeParts) -> None:
    node = await lab(parts)
    node.request(500)
    parts.engine.other_node("OTHR")
    for _ in range(4):
        node.reported("OTHR", LIMIT)
        node.request(500)
        await node.turn()
    assert await rate(node) == pytest.approx(LIMIT / 2, rel=0.1)
    parts.engine.end_node("OTHR")
    await node.turn()
    await rate(node)
    assert await rate(node) == pytest.approx(LIMIT, rel=0.02)
    assert node.reports() == []


@in_virtual_time
async def test_a_report_that_did_not_leave_the_process_does_not_count_as_returned(parts: NodeParts) -> None:
    node = await lab(parts, "OTHR", echo=False)
    publish = parts.engine.publish

    def published_here(topic: Any, message: Message) -> None:
        publish(topic, message)
        node.receive(message)

    parts.engine.publish = published_here  # type: ignore[method-assign]
    for _ in range(round(CUT_OFF_S / PERIOD_S) + 3):
        node.request(500)
        await node.turn()
    await rate(node)
    assert await rate(node) == pytest.approx(LIMIT / 2, rel=0.1)
    parts.engine.publish = publish  # type: ignore[method-assign]
    node.echo = True
    for _ in range(3):
        node.request(500)
        await node.turn()
    assert await rate(node) == pytest.approx(LIMIT, rel=0.1)


@in_virtual_time
async def test_reports_about_limits_that_this_node_does_not_have_change_nothing(parts: NodeParts) -> None:
    node = await lab(parts, "OTHR")
    node.receive(LimitReport("OTHR", [("typing", "acme", 5.0), ("unknown", "acme", 5.0)]))
    assert await node.turn() == []
    assert node.request(500) == LIMIT / 2


@in_virtual_time
async def test_a_node_starts_while_the_engine_is_away(parts: NodeParts) -> None:
    parts.engine.away.add("subscribe")
    node = await lab(parts, "OTHR")
    assert node.request(500) == LIMIT / 2


# --- connections ---


@in_virtual_time
async def test_a_node_alone_has_all_connections(parts: NodeParts) -> None:
    node = await lab(parts)
    assert node.connect(LIMIT + 5) == LIMIT
    assert await node.turn() == []


@in_virtual_time
async def test_connections_are_claimed_reported_and_limited_by_the_claims_of_other_nodes(parts: NodeParts) -> None:
    node = await lab(parts, "OTHR")
    assert node.connect(LIMIT) == LIMIT // 2 // BEGINNING  # the node has just started
    await pass_time(BEGINNING_S + PERIOD_S)
    (report,) = node.reports()[-1:]
    assert report.connections[0][:2] == ("acme", LIMIT // 2 // BEGINNING)
    for _ in range(20):
        node.receive(LimitReport("OTHR", [], [("acme", 10, 30, False)]))
        node.connect(LIMIT)
        await node.turn()
    assert node.connection_limits.counts["acme"] == LIMIT - 30
    parts.engine.end_node("OTHR")
    await node.turn()
    assert node.connect(LIMIT) == 30


@in_virtual_time
async def test_a_node_that_is_cut_off_claims_no_more_connections(parts: NodeParts) -> None:
    node = await lab(parts, "OTHR", echo=False)
    await pass_time(BEGINNING_S + PERIOD_S)
    node.connect(30)
    await pass_time(CUT_OFF_S + 2 * PERIOD_S)
    node.receive(LimitReport("OTHR", [], [("acme", 0, 0, False)]))
    for _ in range(10):
        node.connect(LIMIT)
        await node.turn()
    assert node.connection_limits.counts["acme"] == LIMIT // 2
