"""Holds after a loss: they take effect at once, although they are written to many users in slices."""

from __future__ import annotations

import asyncio

from greendot.engine.messages import Part
from greendot.presence.watched_user import WatchedUser
from greendot.testing import hold
from unit.node_parts import NodeParts, in_virtual_time, pass_time, settle
from unit.presence.test_watch import BOB, be, node, states, watch

HELD_S = 10.0


class OnlyBob(Part):
    def covers(self, tenant: str, name: str) -> bool:
        return name == "bob"


@in_virtual_time
async def test_a_hold_takes_effect_before_it_is_written(parts: NodeParts) -> None:
    made = await node(parts)
    service, ann = made.watching, parts.session("ann")
    bob, eve = await parts.online("bob"), await parts.online("eve")
    await watch(service, ann, "bob", "eve")
    async with hold(made.slices, "turn") as turn:
        service.hold(OnlyBob(), HELD_S)
        await turn.reached()
        for user in (bob, eve):
            await be(parts, user, idle=True)
        assert await states(ann) == ["idle"]  # eve's change; bob's state is kept
        resync = asyncio.ensure_future(service.resync(Part(), intact=False))
        await settle()
        assert not resync.done()  # it waits until the hold is written
    await resync
    assert await states(ann) == []
    await pass_time(HELD_S)
    await service.resync(Part(), intact=False)
    assert await states(ann) == ["idle"]


@in_virtual_time
async def test_the_latest_of_several_holds_counts(parts: NodeParts) -> None:
    made = await node(parts)
    service, ann, bob = made.watching, parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    async with hold(made.slices, "turn") as turn:
        service.hold(Part(), HELD_S)
        await turn.reached()
        service.hold(OnlyBob(), 0.0)
        await be(parts, bob, idle=True)
    await service.resync(Part(), intact=False)
    assert await states(ann) == ["idle"]
    assert not held(service.watched(BOB))


@in_virtual_time
async def test_a_loss_during_a_read_keeps_the_state(parts: NodeParts) -> None:
    made = await node(parts)
    service, ann, bob = made.watching, parts.session("ann"), await parts.online("bob")
    await watch(service, ann, "bob")
    await be(parts, bob, idle=True)
    await states(ann)
    parts.engine.lose()
    async with hold(parts.engine, "ends", when=lambda called: called == "read") as read:
        resync = asyncio.ensure_future(service.resync(Part(), intact=False))
        await read.reached()
        async with hold(made.slices, "turn"):
            service.hold(Part(), HELD_S)  # not written yet when the read ends
            read.release()
            await settle()
    await resync
    assert await states(ann) == []


def held(watched: WatchedUser | None) -> bool:
    assert watched is not None
    return watched.held
