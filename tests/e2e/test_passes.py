"""No single pass over all users or connections of a node: other clients are served in between.

The crowd is that of a large node. Each pass is measured in turns of the loop, in processor time, while a client sends
heartbeats. `make passes` runs this test with 400,000 watched users, and again with a server process and real sockets.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from e2e.collected import collected_as_served
from e2e.crowd import TENANT, Crowd
from e2e.largest import World
from e2e.test_loop_turns import UNIT_S, unit_s
from greendot.engine.messages import Part
from greendot.protocol.cluster import NodeQuery, SampleQuery
from greendot.protocol.codes import Close
from greendot.testing import Served, WireClient, serving
from greendot.testing.turns import Aside, turns

WATCHED = int(os.environ.get("PASSES_WATCHED", "100_000"))
CONNECTIONS = 15_000
LIMIT_S = 0.012  # of a turn; a slice has 3 ms, and other work of the turn adds to it
ATTEMPTS = 4  # a turn that is really long is long each time
# Limits of passes that cannot be repeated.
ONCE = {"stale": 0.03, "everybody_is_disconnected": 0.03, "a_tenant_is_forgotten": 0.02}

Pass = Callable[[Served], Awaitable[Any]]
PASSES: dict[str, Pass] = {}


def one_pass(run: Pass) -> Pass:
    PASSES[run.__name__] = run
    return run


@one_pass
async def nothing(served: Served) -> None:
    await asyncio.sleep(0.05)


@one_pass
async def scrape(served: Served) -> None:
    await served.node.scrape()


@one_pass
async def node_report(served: Served) -> None:
    served.node.cluster.reply(NodeQuery(None))


@one_pass
async def dashboard_sample(served: Served) -> None:
    served.node.cluster.reply(SampleQuery(asker="page", tail=TENANT, nodes=True, most=10))


@one_pass
async def sweep(served: Served) -> None:
    await served.node.engine.sweep()


@one_pass
async def audit(served: Served) -> None:
    await served.node.engine.audit(served.node.sessions.holds)


@one_pass
async def periodic_work(served: Served) -> None:
    await served.advance(31)


@one_pass
async def heads_of_inboxes(served: Served) -> None:
    await served.node.inbox_delivery._compare_quietly()


@one_pass
async def visibility_of_all_users(served: Served) -> None:
    await served.node._visibility._in_use(TENANT)
    await served.node.visibility_updates._review_all(TENANT)
    await served.node._visibility.prune()


@one_pass
async def hold_and_resync(served: Served) -> None:
    served.node.watching.hold(Part(), 0.0)
    await served.node.watching.resync(Part(), intact=False)


@one_pass
async def occupancy_of_all_rooms(served: Served) -> None:
    await served.node.rooms.check_occupancy(Part())


@one_pass
async def stale(served: Served) -> None:
    await served.node.watching.mark_stale(Part())


@one_pass
async def everybody_is_disconnected(served: Served) -> None:
    last = [it for it in served.node.registry.sessions.values() if it.tenant == TENANT][-1]
    served.node.drainer.disconnect_all(Close.DRAINING, "for a test", TENANT)
    while last.connection is not None:  # noqa: ASYNC110  (no hook for tests in the node)
        await asyncio.sleep(0)


async def beating(client: WireClient, until: asyncio.Event) -> int:
    """Send heartbeats one after the other; return their number."""
    count = 0
    while not until.is_set():
        await client.quiet()
        count += 1
    return count


class Measured:
    """Longest turn of each pass, in seconds on the reference machine."""

    def __init__(self, world: World) -> None:
        self.turns_s: dict[str, float] = {}
        self._world = world

    async def measure(self, name: str, run: Pass) -> float:
        slower, self._world.longest_s = unit_s(), 0.0
        async with self._world.measuring():
            await run(self._world.served)
        longest_s = self._world.longest_s / max(1.0, slower / UNIT_S, unit_s() / UNIT_S)
        self.turns_s[name] = min(longest_s, self.turns_s.get(name, longest_s))
        return self.turns_s[name]


@pytest.mark.alone  # other servers of the process would count as objects of this one
@pytest.mark.timing
@pytest.mark.timeout(300)
async def test_no_pass_over_everybody_holds_the_loop() -> None:
    async with serving(limits={"enabled": False}) as served, Aside() as aside, turns() as measured:
        world = World(served, aside, measured)
        with collected_as_served(served.node):
            crowd = Crowd(served)
            await crowd.connect(CONNECTIONS)
            await crowd.watch(WATCHED)
            found = Measured(world)
            probe = await world.client("probe", claims={"tenant": "other"})
            done = await aside.run(_event())
            beats = asyncio.create_task(aside.run(beating(probe, done)))
            for name, run in PASSES.items():
                for _ in range(1 if name in ONCE else ATTEMPTS):
                    if await found.measure(name, run) <= LIMIT_S:
                        break
            await aside.run(_set(done))
            assert await beats > len(PASSES)
            await world.close()
    print({name: f"{turn * 1000:.1f} ms" for name, turn in found.turns_s.items()})
    assert not {name: turn for name, turn in found.turns_s.items() if turn > ONCE.get(name, LIMIT_S)}


# --- where contacts decide, facts are read for each watched user ---


async def contacts_are_refreshed(served: Served) -> None:
    await served.node.visibility_updates._refresh_all()


async def all_contacts_are_read_again(served: Served) -> None:
    await served.node._visibility._read_all(TENANT)
    await served.node.visibility_updates._review_all(TENANT)


async def a_tenant_is_forgotten(served: Served) -> None:
    await served.node._visibility.refresh([])


CONTACT_PASSES: dict[str, Pass] = {
    run.__name__: run for run in (contacts_are_refreshed, all_contacts_are_read_again, a_tenant_is_forgotten)
}


@pytest.mark.alone
@pytest.mark.timing
@pytest.mark.timeout(300)
async def test_no_pass_holds_the_loop_where_contacts_decide() -> None:
    limits, visibility = {"enabled": False}, {"policy": "contacts"}
    async with serving(limits=limits, visibility=visibility) as served, Aside() as aside, turns() as measured:
        world = World(served, aside, measured)
        with collected_as_served(served.node):
            crowd, found = Crowd(served), Measured(world)
            await crowd.connect(100)
            await found.measure("first_reads", lambda _: crowd.watch(WATCHED))
            for name, run in CONTACT_PASSES.items():
                for _ in range(1 if name in ONCE else ATTEMPTS):
                    if await found.measure(name, run) <= LIMIT_S:
                        break
            await world.close()
    print({name: f"{turn * 1000:.1f} ms" for name, turn in found.turns_s.items()})
    del found.turns_s["first_reads"]  # the watches of the crowd are not cut into slices
    assert not {name: turn for name, turn in found.turns_s.items() if turn > ONCE.get(name, LIMIT_S)}


async def _event() -> asyncio.Event:
    return asyncio.Event()


async def _set(event: asyncio.Event) -> None:
    event.set()
