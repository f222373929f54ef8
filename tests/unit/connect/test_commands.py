"""Commands about the connection itself: heartbeats, token refresh and the end."""

from __future__ import annotations

from greendot.auth.model import Revocation
from greendot.engine.messages import Topic
from greendot.errors import KeysUnavailable
from greendot.protocol.codes import Close, Err
from unit.node_parts import HOUR_MS, Client, NodeParts, held, in_virtual_time, pass_time, settle


async def refresh(parts: NodeParts, client: Client, token: str | None = None) -> tuple[str, str | None]:
    """Refresh the token. Return the type of the answer and the error's code."""
    frame = await client.ask(type="token.refresh", token=token or parts.token("ann"))
    return frame["type"], frame.get("code")


async def welcomed(parts: NodeParts, **claims: object) -> Client:
    client = await parts.greeted("ann", claims)
    await client.frames()
    return client


@in_virtual_time
async def test_a_heartbeat_is_acknowledged_and_of_those_that_wait_only_the_last(parts: NodeParts) -> None:
    await parts.whole()
    ann = await welcomed(parts)
    ann.say(type="heartbeat")
    assert [frame["type"] for frame in await ann.frames()] == ["heartbeat.ack"]
    ann.socket.full = True
    ann.say(type="heartbeat")
    await settle()
    for _ in range(5):
        ann.say(type="heartbeat")
    ann.socket.drain()
    assert [frame["type"] for frame in await ann.frames()] == ["heartbeat.ack"] * 2


@in_virtual_time
async def test_a_bye_ends_the_session_without_a_grace(parts: NodeParts) -> None:
    await parts.whole()
    ann = await welcomed(parts)
    ann.say(type="bye")
    assert await ann.closed() == Close.NORMAL
    assert (await parts.states("ann"), parts.registry.sessions) == (["offline"], {})


@in_virtual_time
async def test_a_connection_lasts_as_long_as_its_new_token(parts: NodeParts) -> None:
    await parts.whole(presence={"dead_after_s": 1_000, "heartbeat_s": 300})
    ann = await welcomed(parts, exp=parts.clock.now_ms() // 1000 + 10)
    await pass_time(5)
    later = parts.token("ann", 60)
    reply = await ann.ask(type="token.refresh", token=later)
    assert reply["data"]["expires_at"] == ann.session.grants.expires_at
    await pass_time(10)
    assert await ann.closed() is None
    assert await refresh(parts, ann, parts.token("ann", 5)) == ("reply", None)
    await pass_time(6)
    assert await ann.closed() == Close.TOKEN_EXPIRED


@in_virtual_time
async def test_a_token_that_is_not_good_for_the_session_leaves_it_as_it_is(parts: NodeParts) -> None:
    node = await parts.whole()
    ann = await welcomed(parts)
    before = ann.session.grants
    expires = parts.clock.now_ms() + HOUR_MS
    await node.revocation_service.revoke(Revocation("default", "jti", "bad", expires))
    wrong = (
        "nonsense",
        parts.token("bob"),
        parts.token("ann", tenant="acme"),
        parts.token("ann", ttl_s=-10),
        parts.token("ann", jti="bad"),
    )
    for token in wrong:
        assert await refresh(parts, ann, token) == ("error", Err.BAD_FIELD)
    assert (ann.session.grants, ann.connection.closing) == (before, False)


@in_virtual_time
async def test_a_token_whose_key_cannot_be_fetched_now_may_be_sent_again(parts: NodeParts) -> None:
    node = await parts.whole()
    ann = await welcomed(parts)

    async def away(*_: object) -> None:
        raise KeysUnavailable(retry_in_ms=2_000)

    node.tokens.verify = away  # type: ignore[method-assign, assignment]
    error = await ann.ask(type="token.refresh", token="later")
    assert (error["code"], error["retry_in_ms"], error["retry"]) == (Err.UNAVAILABLE, 2_000, True)


@in_virtual_time
async def test_rooms_that_only_the_old_token_opened_are_left_and_members_stay(parts: NodeParts) -> None:
    await parts.whole()
    for room in ("team", "club", "open"):
        await parts.store.put_room("default", room, open=room == "open")
    await parts.store.put_member("default", "club", "ann")
    ann = await welcomed(parts, rooms=["team", "club"])
    for room in ("team", "club", "open"):
        assert (await ann.ask(type="room.join", room=room))["type"] == "reply"
    assert await refresh(parts, ann) == ("reply", None)
    assert ann.connection.rooms == {"club", "open"}


@in_virtual_time
async def test_watches_that_the_new_token_does_not_allow_end(parts: NodeParts) -> None:
    await parts.whole()
    ann, bob = await welcomed(parts), await parts.online("bob")
    await ann.ask(type="watch", users=["bob", "cid"])
    assert await refresh(parts, ann, parts.token("ann", watch=["c*"])) == ("reply", None)
    assert ann.connection.watches == {"cid"}
    await parts.engine.touch(*bob.session.key, bob.session.ref, "phone", True, None)
    assert await ann.frames() == []


@in_virtual_time
async def test_a_token_that_only_listens_ends_typing(parts: NodeParts) -> None:
    await parts.whole()
    await parts.store.put_room("default", "open", open=True)
    ann, bob = await welcomed(parts), await parts.greeted("bob")
    for client in (ann, bob):
        await client.ask(type="room.join", room="open")
    await ann.ask(type="typing.start", room="open")
    await bob.frames()
    assert await refresh(parts, ann, parts.token("ann", send=False)) == ("reply", None)
    assert [event["user"] for event in await bob.events("typing.stopped")] == ["ann"]


@in_virtual_time
async def test_while_the_store_is_away_the_old_token_holds(parts: NodeParts) -> None:
    node = await parts.whole()
    await parts.store.put_room("default", "team")
    ann = await welcomed(parts, rooms=["team"])
    await ann.ask(type="room.join", room="team")
    room = node.rooms.local(Topic("room", "default", "team"))
    assert room is not None
    room.roles.clear()  # so that the store is read
    before = ann.session.grants
    parts.store.away = {"member_states"}
    kind, code = await refresh(parts, ann)
    assert (kind, code, ann.session.grants is before) == ("error", Err.UNAVAILABLE, True)
    assert ann.connection.rooms == {"team"}


@in_virtual_time
async def test_a_token_that_is_taken_when_the_connection_is_gone_changes_nothing(parts: NodeParts) -> None:
    node = await parts.whole()
    await parts.store.put_room("default", "team")
    ann = await welcomed(parts, rooms=["team"])
    await ann.ask(type="room.join", room="team")
    room = node.rooms.local(Topic("room", "default", "team"))
    assert room is not None
    room.roles.clear()  # so that the store is read
    before = ann.session.grants
    async with held(parts.store, "member_states") as reading:
        ann.say(type="token.refresh", id=1, token=parts.token("ann"))
        await reading.reached()
        ann.cut()
        await settle()
    await settle()
    assert ann.session.grants is before


@in_virtual_time
async def test_a_token_that_is_revoked_while_it_is_taken_ends_the_session(parts: NodeParts) -> None:
    node = await parts.whole()
    await parts.store.put_room("default", "team")
    ann = await welcomed(parts, rooms=["team"])
    await ann.ask(type="room.join", room="team")
    room = node.rooms.local(Topic("room", "default", "team"))
    assert room is not None
    room.roles.clear()  # so that the store is read
    revocation = Revocation("default", "jti", "new", parts.clock.now_ms() + HOUR_MS)
    async with held(parts.store, "member_states") as reading:
        ann.say(type="token.refresh", id=1, token=parts.token("ann", jti="new"))
        await reading.reached()  # the new token is admitted, but the session still has the old one
        await node.revocation_service.revoke(revocation)
        assert not ann.connection.closing
    assert [frame["code"] for frame in await ann.frames("close")] == [Close.REVOKED]
