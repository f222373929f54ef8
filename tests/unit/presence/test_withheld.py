"""Changes that would show an invisible user: withheld until the status is known for sure."""

from __future__ import annotations

from greendot.app.node import Node
from greendot.engine.messages import StatusChanged, Topic
from greendot.presence.model import Change, ManualStatus, SessionEpoch, VisibleState
from greendot.presence.withheld import ASK_S
from unit.node_parts import TENANT, Client, NodeParts, held, in_virtual_time, pass_time, settle

BOB = (TENANT, "bob")
TOPIC = Topic("watch", TENANT, "bob")


async def invisible(parts: NodeParts) -> tuple[Node, Client]:
    """Make a node with bob, who is invisible, and ann, who watches him."""
    node = await parts.whole()
    ann, bob = await parts.greeted("ann"), await parts.greeted("bob")
    parts.engine.save()
    await bob.ask(type="status.set", status="invisible")
    await ann.ask(type="watch", users=["bob"])
    await ann.frames()
    return node, ann


def publish_older(parts: NodeParts, *, public: bool = True, version: int | None = None) -> None:
    """Publish a change that the engine makes of data from before bob became invisible."""
    version = version or parts.engine.now_ms()
    state = VisibleState("online", since=version, version=version)
    parts.engine.publish(TOPIC, Change(state, state, None, ["phone"], public, True))


async def states(client: Client) -> list[str]:
    return [event["state"] for event in await client.events("presence.changed")]


@in_virtual_time
async def test_an_older_state_of_an_invisible_user_is_not_shown_and_is_written_again(parts: NodeParts) -> None:
    node, ann = await invisible(parts)
    parts.engine.fail_over()
    assert (await parts.shown("bob")).visible.state == "online"
    publish_older(parts)
    await pass_time(0.9 * ASK_S)
    assert await states(ann) == []
    await pass_time(0.2 * ASK_S)
    assert (await states(ann), node.statuses.is_invisible(BOB)) == ([], True)
    assert (await parts.shown("bob")).visible.state == "offline"


@in_virtual_time
async def test_a_user_who_is_visible_again_is_shown_as_soon_as_the_status_is_known(parts: NodeParts) -> None:
    node, ann = await invisible(parts)
    await pass_time(0.01)
    publish_older(parts)
    await settle()
    assert await states(ann) == []
    node.statuses.learnt(BOB, ManualStatus(rev=9))
    assert await states(ann) == ["online"]
    await pass_time(2 * ASK_S)
    assert await states(ann) == []


@in_virtual_time
async def test_a_user_who_is_visible_again_is_shown_although_the_announcement_was_lost(parts: NodeParts) -> None:
    _, ann = await invisible(parts)
    await pass_time(0.01)
    await parts.store.put_status(*BOB, ManualStatus())
    publish_older(parts)
    publish_older(parts, version=parts.engine.now_ms() + 1)
    await pass_time(1.1 * ASK_S)
    assert await states(ann) == ["online"]


@in_virtual_time
async def test_while_the_store_is_away_the_change_waits(parts: NodeParts) -> None:
    _, ann = await invisible(parts)
    await pass_time(0.01)
    await parts.store.put_status(*BOB, ManualStatus())
    parts.store.away = {"statuses"}
    publish_older(parts)
    await pass_time(3.5 * ASK_S)
    assert await states(ann) == []
    parts.store.away = set()
    await pass_time(ASK_S)
    assert await states(ann) == ["online"]


@in_virtual_time
async def test_a_late_change_is_dropped_when_the_newer_one_arrives(parts: NodeParts) -> None:
    _, ann = await invisible(parts)
    reads = parts.store.count("statuses")
    publish_older(parts, version=parts.engine.now_ms() + 1)
    hidden = VisibleState("offline", version=parts.engine.now_ms() + 2)
    own = VisibleState("online", version=parts.engine.now_ms() + 2, status="invisible")
    parts.engine.publish(TOPIC, Change(hidden, own, None, ["phone"], True, True))
    await pass_time(2 * ASK_S)
    assert parts.store.count("statuses") == reads
    assert "online" not in await states(ann)


@in_virtual_time
async def test_if_the_last_session_ends_meanwhile_the_user_is_read_again(parts: NodeParts) -> None:
    node, ann = await invisible(parts)
    await pass_time(0.01)
    publish_older(parts)
    await settle()
    (session,) = parts.registry.sessions_of(*BOB)
    parts.registry.remove(session)
    node.statuses.forget(BOB)
    await parts.engine.set_status(*BOB, ManualStatus(rev=9))
    before = await states(ann)
    await pass_time(1.1 * ASK_S)
    assert [*before, *await states(ann)][-1:] == ["online"]


@in_virtual_time
async def test_changes_that_show_nothing_to_others_are_passed_on(parts: NodeParts) -> None:
    node, _ = await invisible(parts)
    publish_older(parts, public=False)
    await settle()
    watched = node.watching.watched(TOPIC)
    assert watched is not None
    assert watched.devices == ["phone"]


@in_virtual_time
async def test_a_later_change_for_the_user_alone_does_not_drop_the_one_for_others(parts: NodeParts) -> None:
    """The user becomes busy, then sets an end. The announcement of the status comes after both changes."""
    _, ann = await invisible(parts)
    for until_s in (None, 3_600):
        await pass_time(0.01)
        until = None if until_s is None else parts.engine.now_ms() + until_s * 1_000
        await parts.engine.set_status(*BOB, await parts.store.put_status(*BOB, ManualStatus("busy", until)))
    assert await states(ann) == []
    parts.receive(Topic("user", *BOB), StatusChanged())
    assert await states(ann) == ["busy"]


@in_virtual_time
async def test_a_change_is_kept_until_the_user_could_be_read(parts: NodeParts) -> None:
    node, ann = await invisible(parts)
    await pass_time(0.01)
    elsewhere = SessionEpoch("OTHR-1", parts.engine.other_node(), 1)
    await parts.engine.touch(*BOB, elsewhere, "laptop", False, None)
    await parts.engine.set_status(*BOB, await parts.store.put_status(*BOB, ManualStatus()))
    await settle()
    (session,) = parts.registry.sessions_of(*BOB)
    parts.registry.remove(session)
    node.statuses.forget(BOB)
    await pass_time(0.9 * ASK_S)
    parts.engine.away = {"read"}
    await pass_time(0.2 * ASK_S)
    assert await states(ann) == []
    parts.engine.away = set()
    await pass_time(ASK_S)
    assert await states(ann) == ["online"]


@in_virtual_time
async def test_a_user_is_shown_when_the_node_learns_late_that_the_status_is_over(parts: NodeParts) -> None:
    """The node's copy of the engine's time may be some seconds behind."""
    node, ann = await invisible(parts)
    await pass_time(0.01)
    publish_older(parts)
    await pass_time(3 * ASK_S)
    assert await states(ann) == []
    node.statuses.learnt(BOB, ManualStatus(rev=9))
    assert await states(ann) == ["online"]


@in_virtual_time
async def test_a_status_that_changes_while_it_is_read_is_not_lost(parts: NodeParts) -> None:
    _, ann = await invisible(parts)
    await pass_time(0.01)
    publish_older(parts)
    async with held(parts.store, "statuses", "after") as reading:
        await reading.reached()
        await parts.engine.set_status(*BOB, await parts.store.put_status(*BOB, ManualStatus()))
        await settle()
    parts.receive(Topic("user", *BOB), StatusChanged())
    await settle()
    assert await states(ann) == ["online"]


@in_virtual_time
async def test_a_withheld_change_is_shown_with_the_newest_name_and_devices(parts: NodeParts) -> None:
    node, ann = await invisible(parts)
    await pass_time(0.01)
    await parts.engine.set_status(*BOB, await parts.store.put_status(*BOB, ManualStatus()))
    elsewhere = SessionEpoch("OTHR-1", parts.engine.other_node(), 1)
    await parts.engine.touch(*BOB, elsewhere, "laptop", False, "Bob")
    await settle()
    parts.receive(Topic("user", *BOB), StatusChanged())
    shown = [(event["state"], event["name"]) for event in await ann.events("presence.changed")]
    watched, truth = node.watching.watched(TOPIC), await parts.shown("bob")
    assert watched is not None
    assert (shown[-1], watched.devices) == (("online", "Bob"), truth.devices)
