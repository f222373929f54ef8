"""Revoked tokens, sessions and users: closed with 4501 and refused afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from e2e import processes
from e2e.narrow import connection_of, peer
from e2e.processes import Answer, until
from greendot.auth.model import Revocation
from greendot.auth.revocation import EVERY_S, FRESH_S
from greendot.engine.messages import Part
from greendot.errors import StoreUnavailable
from greendot.testing import Closed, Served, WireClient, serving
from greendot.testing.server import API_KEY
from postgres_server import fresh_schema

DAY_S = 86_400


class Revoker:
    """App backend that revokes tokens."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def __call__(self, **body: Any) -> Answer:
        key = f"Bearer {API_KEY}"
        return await processes.ask(self._served.port, "POST", "/v1/tokens/revoke", body, authorization=key)

    async def closed(self, **body: Any) -> int:
        """Revoke and return the number of closed sockets in the response."""
        answer = await self(**body)
        assert answer.status == 200, answer
        closed: int = answer.json()["closed"]
        return closed


@asynccontextmanager
async def revocation_service(**sections: dict[str, Any]) -> AsyncIterator[tuple[Served, Revoker]]:
    async with serving(**sections) as served:
        yield served, Revoker(served)


async def refused(served: Served, token: str, **hello: Any) -> int:
    """Return the close code of a hello with this token."""
    client = await served.socket()
    with pytest.raises(Closed) as closed:
        await client.hello(token, **hello)
    return closed.value.code


async def the_rest(client: WireClient) -> tuple[list[dict[str, Any]], Closed]:
    """Return all frames up to the close, and the close."""
    frames = []
    while True:
        try:
            frames.append(await client.receive())
        except Closed as closed:
            return frames, closed


# --- closed and refused ---


async def test_a_revoked_user_is_closed_everywhere_and_comes_back_with_a_newer_token_only() -> None:
    async with revocation_service() as (served, revoke):
        old = served.token("alice")
        alice, tab, bob = await served.client("alice"), await served.client("alice"), await served.client("bob")
        await served.advance(1)
        assert await revoke.closed(user="alice") == 2
        assert (await alice.closed()).code == (await tab.closed()).code == 4501
        assert await refused(served, old) == 4501
        await bob.request(type="presence.get", users=["alice"])
        await served.advance(1)
        await served.client("alice")


async def test_a_token_issued_after_the_revocation_in_the_same_second_is_accepted() -> None:
    async with revocation_service() as (served, revoke):
        await served.advance(0.4)
        before = served.token("ann")
        await served.advance(0.001)
        await revoke(user="ann")
        assert served.clock.now_ms() % 1000 == 401
        assert await refused(served, before) == 4501
        await served.client("ann")


async def test_a_user_is_revoked_from_a_time_on_and_newer_sessions_stay() -> None:
    async with revocation_service() as (served, revoke):
        old = await served.client("alice")
        await served.advance(60, [old])
        between = served.clock.now_ms()
        await served.advance(60, [old])
        new = await served.client("alice")
        assert await revoke.closed(user="alice", before=between) == 1
        assert (await old.closed()).code == 4501
        await new.request(type="room.list")


async def test_a_token_without_an_issue_time_counts_as_an_old_one() -> None:
    async with revocation_service() as (served, revoke):
        await revoke.closed(user="alice")
        await served.advance(5)
        token = served.token("alice")
        await served.client("alice")
        assert await refused(served, served.node.tokens.make("alice", served.clock.now_ms(), 60, iat=None)) == 4501
        await (await served.socket()).hello(token)


async def test_a_token_is_revoked_by_its_jti_and_the_users_other_tokens_hold() -> None:
    async with revocation_service() as (served, revoke):
        lost = await served.client("alice", claims={"jti": "lost"})
        same = await served.client("alice", claims={"jti": "lost"})
        other = await served.client("alice", claims={"jti": "kept"})
        assert await revoke.closed(jti="lost") == 2
        assert (await lost.closed()).code == (await same.closed()).code == 4501
        await other.request(type="room.list")
        assert await refused(served, served.token("alice", jti="lost")) == 4501
        await served.client("alice")


async def test_a_session_is_revoked_with_its_token_and_cannot_be_resumed() -> None:
    async with revocation_service() as (served, revoke):
        stolen = await served.client("alice", claims={"jti": "stolen"})
        twin = await served.client("alice", claims={"jti": "stolen"})
        other = await served.client("alice")
        session = stolen.welcome["session"]
        assert await revoke.closed(session=session) == 1
        assert (await stolen.closed()).code == 4501
        assert (await twin.closed()).code == 4501  # the same token
        await served.settle()
        assert await refused(served, served.token("alice", jti="stolen")) == 4501
        assert await refused(served, served.token("alice"), resume={"session": session}) == 4501
        await other.request(type="room.list")


async def test_a_session_that_lingers_ends_at_once_for_those_who_watch() -> None:
    async with revocation_service() as (served, revoke):
        watcher, alice = await served.client("bob"), await served.client("alice")
        await watcher.request(type="watch", users=["alice"])
        await alice.end()
        await served.until_gone(1)
        await served.advance(1, [watcher])
        assert await revoke.closed(user="alice") == 0
        assert (await watcher.receive("presence.changed"))["data"]["state"] == "offline"
        assert len(served.node.registry.sessions) == 1


async def test_all_tokens_of_a_tenant_are_revoked_and_newer_ones_and_other_tenants_hold() -> None:
    async with revocation_service() as (served, revoke):
        old = served.token("alice")
        clients = [await served.client(user) for user in ("alice", "alice", "bob")]
        theirs = await served.client("alice", claims={"tenant": "acme"})
        lingers = await served.client("carol")
        await lingers.end()
        await served.until_gone(4)
        await served.advance(1, [*clients, theirs])
        assert await revoke.closed(all=True) == 3
        assert [(await client.closed()).code for client in clients] == [4501] * 3
        assert await refused(served, old) == 4501
        await served.settle()
        assert len(served.node.registry.sessions) == 1
        await theirs.request(type="room.list")
        await served.advance(1)
        await served.client("alice")


async def test_all_tokens_of_all_tenants_are_revoked_in_the_store_as_after_a_restore() -> None:
    async with revocation_service() as (served, _):
        alice, theirs = await served.client("alice"), await served.client("alice", claims={"tenant": "acme"})
        old = served.token("bob", tenant="other")
        await served.advance(1, [alice, theirs])
        now = served.clock.now_ms()
        await served.node.store.put_revocation(Revocation("*", "tenant", "*", now + DAY_S * 1000, now))
        await served.advance(EVERY_S)
        assert [(await client.closed()).code for client in (alice, theirs)] == [4501] * 2
        assert await refused(served, old) == 4501
        await served.client("bob", claims={"tenant": "other"})


async def test_another_tenants_names_are_not_meant() -> None:
    async with revocation_service() as (served, revoke):
        theirs = await served.client("alice", claims={"tenant": "acme", "jti": "j"})
        for what in ({"user": "alice"}, {"jti": "j"}, {"session": theirs.welcome["session"]}):
            assert await revoke.closed(**what) == 0
        await theirs.request(type="room.list")
        await served.client("alice", claims={"tenant": "acme", "jti": "j"})


async def test_a_revoked_token_does_not_replace_one_that_holds() -> None:
    async with revocation_service() as (served, revoke):
        alice = await served.client("alice")
        await revoke.closed(jti="gone")
        alice.send(type="token.refresh", token=served.token("alice", jti="gone"), id=1)
        answer = await alice.receive("error")
        assert (answer["code"], "revoked" in answer["message"]) == ("bad_field", True)
        await alice.request(type="room.list")
        # After a refresh, a revocation applies to the new token.
        await alice.request(type="token.refresh", token=served.token("alice", jti="new"))
        assert await revoke.closed(jti="new", user="alice") == 1
        assert (await alice.closed()).code == 4501


async def test_revoking_twice_closes_no_session_twice() -> None:
    async with revocation_service() as (served, revoke):
        alice = await served.client("alice")
        await served.advance(1)
        assert [await revoke.closed(user="alice"), await revoke.closed(user="alice")] == [1, 0]
        assert (await alice.closed()).code == 4501


# --- missed revocations ---


async def write(served: Served, user: str, before: int | None = None) -> None:
    """Write a revocation to the store without a message to the node, as if the message was lost."""
    now = served.clock.now_ms()
    entry = Revocation("default", "user", user, now + DAY_S * 1000, before if before is not None else now + 1)
    await served.node.store.put_revocation(entry)


async def test_a_revocation_whose_message_was_lost_is_read_within_15_s() -> None:
    async with revocation_service() as (served, _):
        alice, bob = await served.client("alice"), await served.client("bob")
        await write(served, "alice")
        await served.advance(EVERY_S)
        assert (await alice.closed()).code == 4501
        await bob.request(type="room.list")


async def test_a_hello_reads_revocations_whose_message_was_lost() -> None:
    async with revocation_service() as (served, _):
        token = served.token("alice")
        await served.advance(FRESH_S)
        await write(served, "alice")
        assert await refused(served, token) == 4501


async def test_after_the_node_was_cut_off_it_is_read_at_once() -> None:
    async with revocation_service() as (served, _):
        alice = await served.client("alice")
        await write(served, "alice")
        served.node.found(Part(), intact=True)
        assert (await alice.closed()).code == 4501


async def test_an_unavailable_store_refuses_no_client_and_known_revocations_count() -> None:
    async with revocation_service() as (served, revoke):
        old = served.token("alice")
        await served.advance(1)
        await revoke.closed(user="alice")
        read, asked = served.node.store.revocations, 0

        async def away(after: int, limit: int, now: int = 0) -> Any:
            nonlocal asked
            asked += 1
            raise StoreUnavailable("away")

        served.node.store.revocations = away  # type: ignore[method-assign]
        await served.advance(FRESH_S)
        await served.client("bob")
        await served.client("carol")
        assert asked == 1
        assert await refused(served, old) == 4501
        served.node.store.revocations = read  # type: ignore[method-assign]


async def test_a_node_that_starts_knows_what_was_revoked_before(tmp_path: Any) -> None:
    place = {"url": f"sqlite:///{tmp_path}/store.db"}
    async with revocation_service(store=place) as (served, revoke):
        token = served.token("alice", jti="j")
        await revoke.closed(jti="j")
    async with revocation_service(store=place) as (served, _):
        assert await refused(served, token) == 4501


async def test_a_token_that_was_revoked_stays_so_when_its_tenant_is_erased(tmp_path: Any) -> None:
    place = {"url": f"sqlite:///{tmp_path}/store.db"}
    async with revocation_service(store=place) as (served, revoke):
        token = served.token("alice", jti="j")
        await revoke.closed(jti="j")
        await served.lobby()
        while await served.node.store.erase_tenant("default", limit=100):
            pass
        assert await served.node.store.tenant_rows("default") == {}
    async with revocation_service(store=place) as (served, _):
        assert await refused(served, token) == 4501


async def test_entries_end_with_the_last_token_they_could_be_about() -> None:
    async with revocation_service(auth={"secret": "x" * 32, "longest_token_s": 100.0}) as (served, revoke):
        answer = await revoke(user="alice")
        assert answer.json()["expires_at"] == served.clock.now_ms() + 100_000
        await revoke(jti="j", expires_at=served.clock.now_ms() + 1_000)
        assert len(served.node.revocation_service._known) == 2
        await served.advance(100 + EVERY_S)
        assert len(served.node.revocation_service._known) == 0
        await served.job("retention")
        assert await served.node.store.revocations(0, 10, served.clock.now_ms()) == []


async def test_an_unavailable_store_refuses_no_client_with_a_token_without_iat() -> None:
    async with revocation_service() as (served, _):

        async def away(names: Any) -> Any:
            raise StoreUnavailable("away")

        served.node.revocation_service._kept._read = away
        await served.client("bob", claims={"ttl_s": 60, "iat": None})


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("what", [{"user": "alice"}, {"jti": "j"}, {"all": True}])
async def test_a_revoked_token_without_iat_does_not_come_back_when_the_entry_has_ended(
    store: str, what: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """The age of a token without `iat` is unknown: it may be older than a revocation that has expired."""
    async with AsyncExitStack() as stack:
        url = "sqlite:///:memory:"
        if store == "postgres":
            url = await stack.enter_async_context(fresh_schema(request.getfixturevalue("postgres")))
        sections = {"auth": {"secret": "x" * 32, "longest_token_s": 100.0}, "store": {"url": url, "migrate": True}}
        served, revoke = await stack.enter_async_context(revocation_service(**sections))
        old = served.token("alice", ttl_s=180, iat=None, jti="j")
        assert await refused(served, old) == 4500  # valid for longer than allowed
        await revoke.closed(**what)
        await served.advance(101)
        await served.job("retention")
        await served.advance(EVERY_S)
        assert len(served.node.revocation_service._known) == 0
        assert await refused(served, old) == 4501
        await served.client("alice", claims={"ttl_s": 60})
        if "all" not in what:
            await served.client("bob", claims={"ttl_s": 60, "iat": None, "jti": "other"})


async def test_a_token_that_would_outlive_its_revocation_is_refused() -> None:
    async with revocation_service(auth={"secret": "x" * 32, "longest_token_s": 3600.0}) as (served, _):
        await served.client("alice", claims={"ttl_s": 3600})
        assert await refused(served, served.token("alice", ttl_s=3601)) == 4500


# --- pending frames and commands ---


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", [{"user": "alice"}, {"jti": "j"}, {"jti": "j", "user": "alice"}, {"session": None}])
async def test_a_revoked_user_with_a_thousand_frames_waiting_gets_none_of_them(what: dict[str, Any]) -> None:
    async with revocation_service(limits={"enabled": False}) as (served, revoke):
        await served.lobby()
        speaker, slow = await served.joined("speaker"), await peer(served, "alice", "lobby", jti="j")
        slow.stop_reading()
        connection, said = connection_of(served, "alice"), 0
        while connection._outbox is None:
            said += 1
            await speaker.request(type="room.send", room="lobby", body="x" * 700)
        for _ in range(1_000):
            await speaker.request(type="room.send", room="lobby", body="x" * 700)
        assert len(connection._outbox) >= 999
        await served.advance(1)  # the issue time of tokens has whole seconds
        named = {"session": slow.welcome["session"]} if "session" in what else what
        assert await revoke.closed(**named) == 1
        await speaker.request(type="room.send", room="lobby", body="after")
        slow.go_on_reading()
        frames, closed = await the_rest(slow)
        assert closed.code == 4501
        # The frame whose sending had begun is the last.
        assert max(frame["data"]["seq"] for frame in frames if frame["type"] == "room.message") <= said + 1


async def test_a_pending_message_of_a_revoked_user_is_not_sent() -> None:
    async with revocation_service() as (served, revoke):
        await served.lobby()
        bob, alice = await served.joined("bob"), await served.client("alice")
        look, going = served.node.rooms.membership.admit, asyncio.Event()

        async def slowly(*arguments: Any, **named: Any) -> Any:
            found = await look(*arguments, **named)
            await going.wait()
            return found

        await alice.request(type="room.join", room="lobby")
        served.node.rooms.membership.admit = slowly  # type: ignore[method-assign]
        alice.send(type="room.send", room="lobby", body="too late")
        await until(lambda: connection_of(served, "alice").waiting is not None)
        served.clock.advance(1)
        assert await revoke.closed(user="alice") == 1
        going.set()
        await served.settle()
        assert (await served.node.store.room("default", "lobby")).head == 0  # type: ignore[union-attr]
        assert [frame for frame in await bob.quiet() if frame["type"] == "room.message"] == []


async def test_a_hello_under_way_does_not_slip_through() -> None:
    async with revocation_service() as (served, revoke):
        going, coming, opens = asyncio.Event(), asyncio.Event(), served.node.sessions.open

        async def slowly(*arguments: Any) -> Any:
            coming.set()
            await going.wait()
            return await opens(*arguments)

        served.node.sessions.open = slowly  # type: ignore[method-assign]
        client = await served.socket()
        client.send(type="hello", token=served.token("alice", jti="j"))
        await coming.wait()
        assert await revoke.closed(jti="j") == 0
        going.set()
        assert (await client.closed()).code == 4501
        await served.until_gone()
        assert served.node.registry.sessions == {}


# --- bad input ---


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "give exactly one of"),
        ({"jti": "j", "session": "s"}, "give exactly one of"),
        ({"session": "s", "user": "u"}, "give exactly one of"),
        ({"user": "u", "expires_at": 1}, "allowed only with `jti`"),
        ({"jti": "j", "before": 1}, "allowed only with `user`"),
        ({"jti": ""}, "jti"),
        ({"jti": "j" * 201}, "jti"),
        ({"user": "a b"}, "user"),
        ({"user": "u", "before": "now"}, "before"),
        ({"user": "u", "before": 1}, "longest token lifetime"),
        ({"user": "u", "before": 2**62}, "future"),
        ({"jti": "j", "expires_at": 1}, "is in the past"),
        ({"all": False}, "`all` must be true"),
        ({"all": True, "user": "u"}, "excludes `jti`, `session` and `user`"),
        ({"all": True, "before": 1}, "longest token lifetime"),
        ({"users": ["u"]}, "users"),
    ],
)
async def test_what_cannot_be_meant_is_refused(body: dict[str, Any], said: str) -> None:
    async with revocation_service() as (_, revoke):
        answer = await revoke(**body)
        assert (answer.status, answer.json()["code"]) == (400, "bad_field")
        assert said in answer.json()["detail"]


async def test_odd_ids_are_revoked_as_they_are() -> None:
    async with revocation_service() as (served, revoke):
        odd = "a:{*}/ü 'x'; --"
        client: WireClient = await served.client("alice", claims={"jti": odd})
        assert await revoke.closed(jti=odd) == 1
        assert (await client.closed()).code == 4501
