"""Hello: admission, verification, welcome with missed records, refusals, and sessions of clients that wait."""

from __future__ import annotations

from typing import Any

from greendot.auth.model import Revocation
from greendot.connect.hello import CLAIMING_MS, CROWDED_MS, LONGEST_S, REFUSING_S, RETRY_MS
from greendot.engine.messages import HoldSession, Topic
from greendot.limits.overload_model import Level
from greendot.protocol.codes import Close
from greendot.protocol.events import Welcome
from greendot.store.rooms import Draft
from greendot.testing.server import SECRET
from unit.node_parts import HOUR_MS, Client, NodeParts, held, in_virtual_time, pass_time, settle

GRACE_S = 30.0
ONE_AT_ONCE = {"admission": {"hellos_at_once": 1, "waiting": 1, "hellos_per_s": 10}}
LOSE_NO_TIME = {"presence": {"grace_s": GRACE_S}}


async def away_ms(client: Client) -> int | None:
    """Return the retry time of a client that was sent away; None if it was not."""
    frames = await client.frames()
    if not frames or frames[-1].get("code") != Close.OVERLOADED:
        return None
    assert frames[-2]["type"] == "overloaded"
    return int(frames[-2]["data"]["retry_in_ms"])


async def lingering(parts: NodeParts, user: str = "ann") -> str:
    """Connect a user and cut the connection. Return the session's id."""
    client = await parts.greeted(user)
    session = client.session.id
    client.cut()
    await settle()
    return session


async def write(parts: NodeParts, room: str, *texts: str) -> None:
    for text in texts:
        await parts.store.append("default", room, Draft("bob", None, b'"%b"' % text.encode(), text, 1))


# --- the welcome ---


@in_virtual_time
async def test_a_client_with_a_good_token_is_welcomed_and_seen(parts: NodeParts) -> None:
    await parts.whole()
    ann = await parts.greeted("ann", {"tenant": "acme"}, device="tablet")
    (welcome,) = await ann.events()
    assert (welcome["user"], welcome["tenant"], welcome["resumed"]) == ("ann", "acme", False)
    assert (welcome["session"], welcome["node"]) == (ann.session.id, parts.incarnation)
    assert (await parts.shown("ann", "acme")).devices == ["tablet"]
    assert parts.metrics.hello.count == 1
    assert parts.metrics.recovery.count == 0


@in_virtual_time
async def test_a_returning_client_has_its_session_again(parts: NodeParts) -> None:
    await parts.whole()
    session = await lingering(parts)
    back = await parts.greeted("ann", resume={"session": session})
    (welcome,) = await back.events()
    assert (welcome["session"], welcome["resumed"], parts.metrics.recovery.count) == (session, True, 1)


@in_virtual_time
async def test_missed_messages_follow_the_welcome_and_live_ones_come_after_them(parts: NodeParts) -> None:
    await parts.whole()
    await parts.store.put_room("default", "lobby", open=True)
    await write(parts, "lobby", "m1", "m2", "m3")
    bob = await parts.greeted("bob")
    await bob.ask(type="room.join", room="lobby")
    async with held(parts.store, "inboxes") as reading:
        ann = await parts.greeted("ann", resume={"rooms": {"lobby": 1}})
        await reading.reached()
        await bob.ask(type="room.send", room="lobby", body="live", key="k")
        assert await ann.frames() == []
    frames = await ann.frames()
    said = [frame["data"]["body"] for frame in frames if frame["type"] == "room.message"]
    assert (frames[0]["type"], said) == ("welcome", ["m2", "m3", "live"])
    assert frames[0]["data"]["rooms"]["lobby"] == {"head": 3, "recovered": True, "truncated": False}


@in_virtual_time
async def test_a_room_that_the_client_lost_is_left_out_of_the_welcome(parts: NodeParts) -> None:
    await parts.whole()
    await parts.store.put_room("default", "open", open=True)
    await parts.store.put_room("default", "closed")
    ann = await parts.greeted("ann", resume={"rooms": {"open": 0, "closed": 0, "unknown": 0}})
    (welcome,) = await ann.events("welcome")
    assert [*welcome["rooms"]] == ["open"]
    assert ann.connection.rooms == {"open"}


@in_virtual_time
async def test_no_more_rooms_are_looked_up_than_a_client_may_be_in(parts: NodeParts) -> None:
    await parts.whole(limits={"rooms": 3})
    for number in range(6):
        await parts.store.put_room("default", f"r{number}", open=True)
    ann = await parts.greeted("ann", resume={"rooms": {f"r{number}": 0 for number in range(6)}})
    (welcome,) = await ann.events("welcome")
    assert [*welcome["rooms"]] == ["r0", "r1", "r2"]


# --- refusals ---


@in_virtual_time
async def test_wrong_expired_and_revoked_tokens_get_their_own_close_codes_and_leave_no_state(parts: NodeParts) -> None:
    node = await parts.whole()
    forged, expired, revoked = parts.client(), parts.client(), parts.client()
    forged.say(type="hello", token="nonsense")
    token = parts.token("ann", 1.0)
    now = parts.clock.now_ms() + 1_000
    await node.revocation_service.revoke(Revocation("default", "user", "bob", now + HOUR_MS, now))
    revoked.say(type="hello", token=parts.token("bob"))
    await pass_time(1.1)
    expired.say(type="hello", token=token)
    codes = [await client.closed() for client in (forged, expired, revoked)]
    assert codes == [Close.BAD_TOKEN, Close.TOKEN_EXPIRED, Close.REVOKED]
    assert (parts.registry.sessions, parts.engine.count("touch"), node.hello.strangers) == ({}, 0, set())


@in_virtual_time
async def test_a_client_that_cannot_read_an_essential_event_is_refused(parts: NodeParts) -> None:
    await parts.whole()
    ann = await parts.greeted("ann", supports={Welcome.type: [99]})
    assert await ann.closed() == Close.VERSION
    assert parts.registry.sessions == {}


@in_virtual_time
async def test_while_the_engine_or_the_store_is_away_clients_are_asked_to_return(parts: NodeParts) -> None:
    await parts.whole()
    parts.engine.away = {"touch"}
    assert await away_ms(await parts.greeted("ann")) == RETRY_MS
    assert parts.registry.sessions == {}
    parts.engine.away, parts.store.away = set(), {"inboxes"}
    assert await away_ms(await parts.greeted("ann")) == RETRY_MS
    parts.store.away = set()
    assert await (await parts.greeted("ann")).events("welcome")


@in_virtual_time
async def test_a_user_with_too_many_connections_is_asked_to_return_at_a_random_time(parts: NodeParts) -> None:
    await parts.whole(limits={"user_connections": 1})
    await parts.greeted("ann")
    times = [await away_ms(await parts.greeted("ann")) for _ in range(5)]
    assert all(time is not None and CROWDED_MS // 2 <= time <= CROWDED_MS for time in times)
    assert len({*times}) > 1
    assert len(parts.registry.sessions) == 1


@in_virtual_time
async def test_while_other_nodes_may_release_connections_clients_are_asked_to_return_soon(parts: NodeParts) -> None:
    node = await parts.whole(limits={"tenant_connections": 2})
    await parts.greeted("ann")
    node.connection_limits.claims.meet("NODE", ["PEER"], 0.0)
    for _ in range(5):
        wait_ms = await away_ms(await parts.greeted("bob"))
        assert wait_ms is not None
        assert CLAIMING_MS // 2 <= wait_ms <= CLAIMING_MS


@in_virtual_time
async def test_a_fault_on_the_server_closes_the_connection_and_is_logged(parts: NodeParts) -> None:
    node = await parts.whole()

    def fault(*_: Any) -> None:
        raise RuntimeError("a fault")

    node.rooms.returned = fault  # type: ignore[method-assign]
    ann = await parts.greeted("ann")
    assert await ann.closed() == Close.INTERNAL
    assert parts.failed() == ["RuntimeError('a fault')"]


@in_virtual_time
async def test_a_token_that_is_revoked_while_the_session_opens_is_not_welcomed(parts: NodeParts) -> None:
    node = await parts.whole()
    async with held(parts.engine, "adopt") as adopting:
        ann = await parts.greeted("ann", {"jti": "t1"}, resume={"session": "OTHR-1"})
        await adopting.reached()  # the session is not registered yet, so the revocation cannot find it
        expires = parts.clock.now_ms() + HOUR_MS
        await node.revocation_service.revoke(Revocation("default", "jti", "t1", expires))
    (close,) = await ann.frames()
    assert close["code"] == Close.REVOKED


@in_virtual_time
async def test_a_client_that_is_gone_when_its_token_is_verified_gets_no_session(parts: NodeParts) -> None:
    node = await parts.whole()
    await pass_time(1.3)  # the next hello reads revocations again
    async with held(parts.store, "revocations") as reading:
        ann = await parts.greeted("ann")
        await reading.reached()
        ann.cut()
        await settle()
    await settle()
    assert (parts.engine.count("touch"), node.hello.strangers) == (0, set())


# --- admission ---


@in_virtual_time
async def test_hellos_beyond_those_under_way_wait_and_beyond_that_are_sent_away(parts: NodeParts) -> None:
    node = await parts.whole(**ONE_AT_ONCE)
    async with held(parts.engine, "touch"):
        first, second, third, fourth = [await parts.greeted(user) for user in ("ann", "bob", "cid", "dan")]
        assert (parts.engine.count("touch"), node.hello.waiting) == (1, 1)
        times = [await away_ms(third), await away_ms(fourth)]
        assert None not in times
        assert times[0] != times[1]
    assert await first.events("welcome")
    assert await second.events("welcome")
    assert parts.metrics.realtime_hellos_refused_total == 2


@in_virtual_time
async def test_a_hello_that_waited_too_long_is_sent_away(parts: NodeParts) -> None:
    node = await parts.whole(**ONE_AT_ONCE)
    async with held(parts.engine, "touch"):
        await parts.greeted("ann")
        second = await parts.greeted("bob")
        await pass_time(LONGEST_S - 0.1)
        assert await away_ms(second) is None
        await pass_time(0.2)
        assert await away_ms(second) is not None
        assert node.hello.waiting == 0


@in_virtual_time
async def test_a_client_that_left_while_it_waited_is_not_answered(parts: NodeParts) -> None:
    node = await parts.whole(**ONE_AT_ONCE)
    async with held(parts.engine, "touch"):
        await parts.greeted("ann")
        second = await parts.greeted("bob")
        second.cut()
        await settle()
        assert node.hello.waiting == 0
    await pass_time(1)
    assert parts.engine.count("touch") == 1


@in_virtual_time
async def test_a_node_with_too_much_to_do_sends_hellos_away_for_some_seconds(parts: NodeParts) -> None:
    node = await parts.whole()
    node.hello.loaded(Level.REFUSING)
    time = await away_ms(await parts.greeted("ann"))
    assert time is not None
    assert time >= REFUSING_S * 1000
    node.hello.loaded(Level.SHEDDING)
    assert await (await parts.greeted("ann")).events("welcome")


# --- sessions of clients that wait ---


@in_virtual_time
async def test_the_session_of_a_client_that_was_sent_away_lasts_until_it_can_be_back(parts: NodeParts) -> None:
    node = await parts.whole(**LOSE_NO_TIME)
    session = await lingering(parts)
    await pass_time(GRACE_S - 3)
    node.hello.loaded(Level.REFUSING)
    assert await away_ms(await parts.greeted("ann", resume={"session": session}))
    await pass_time(GRACE_S)
    assert await parts.states("ann") == ["online"]
    await pass_time(REFUSING_S + 1)
    assert await parts.states("ann") == ["offline"]


@in_virtual_time
async def test_the_session_of_a_client_beyond_a_limit_lasts_until_it_can_be_back(parts: NodeParts) -> None:
    await parts.whole(**LOSE_NO_TIME, limits={"tenant_connections": 1})
    session = await lingering(parts)
    await parts.greeted("bob")
    await pass_time(GRACE_S - 3)
    wait_ms = await away_ms(await parts.greeted("ann", resume={"session": session}))
    assert wait_ms is not None
    await pass_time(wait_ms / 1000)
    assert await parts.states("ann") == ["online"]


@in_virtual_time
async def test_the_session_of_a_client_lasts_while_the_store_is_away(parts: NodeParts) -> None:
    await parts.whole(**LOSE_NO_TIME, auth={"secret": SECRET, "tenants": "registered"})
    await parts.store.create_tenant("default", 1)
    session = await lingering(parts)
    await pass_time(GRACE_S - 3)
    parts.store.away = {"tenant"}
    assert await away_ms(await parts.greeted("ann", resume={"session": session})) == RETRY_MS
    await pass_time(RETRY_MS / 1000)
    assert await parts.states("ann") == ["online"]


@in_virtual_time
async def test_a_session_is_not_prolonged_by_the_token_of_another_user(parts: NodeParts) -> None:
    node = await parts.whole(**LOSE_NO_TIME)
    session = await lingering(parts)
    await pass_time(GRACE_S - 3)
    node.hello.loaded(Level.REFUSING)
    await parts.greeted("mallory", resume={"session": session})
    await pass_time(4)
    assert await parts.states("ann") == ["offline"]


@in_virtual_time
async def test_the_node_of_the_session_is_notified_that_its_client_waits(parts: NodeParts) -> None:
    node = await parts.whole()
    node.hello.loaded(Level.REFUSING)
    time = await away_ms(await parts.greeted("ann", resume={"session": "OTHR-1"}))
    (told,) = parts.engine.sent_to("OTHR")
    assert isinstance(told, HoldSession)
    assert (told.session, told.tenant, told.user) == ("OTHR-1", "default", "ann")
    assert abs(told.wait_ms - (time or 0)) <= 1


@in_virtual_time
async def test_a_session_is_held_for_the_user_that_another_node_names_and_for_no_other(parts: NodeParts) -> None:
    await parts.whole(**LOSE_NO_TIME)
    session, other = await lingering(parts), await lingering(parts, "bob")
    await pass_time(GRACE_S - 3)
    own = Topic("node", "", parts.incarnation)
    parts.engine.publish(own, HoldSession(session, "default", "ann", 8_000))
    parts.engine.publish(own, HoldSession(other, "default", "ann", 8_000))
    await pass_time(4)
    assert await parts.states("ann", "bob") == ["online", "offline"]
