"""Revocations: stored first, published to all nodes, read again after a lost message, confirmed by a lone server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greendot.auth.model import EVERY_TENANT, Revocation, RevocationKind
from greendot.auth.revocation import EVERY_ALONE_S, EVERY_S, FRESH_S, RevocationService
from greendot.engine.memory import MemoryEngine
from greendot.engine.messages import Acknowledged, Revoked, Topic
from greendot.engine.results import NodeInfo
from greendot.errors import EngineUnavailable, TokenError, TokenRevoked
from greendot.node.cluster_rpc import WITHIN_S, ClusterRpc
from greendot.node.session import Session
from greendot.presence.model import SessionEpoch
from greendot.protocol.codes import Close
from unit.node_parts import HOUR_MS, Client, NodeParts, held, in_virtual_time, pass_time, settle, under_way

LONGEST_MS = 2 * HOUR_MS
OTHER = "OTHR"


class Service(RevocationService):
    """Revocation service on the parts of a node. It ends the registered sessions itself, without a session service."""

    def __init__(self, parts: NodeParts, *, alone: bool = False) -> None:
        self.parts = parts
        self.ended: list[Session] = []
        rpc = ClusterRpc(parts.engine, lambda: parts.incarnation)
        super().__init__(parts.engine, parts.store, self, parts.context, rpc, LONGEST_MS, alone=alone)
        parts.bus |= {**self.bus, Acknowledged: rpc.acknowledged}

    def here(self) -> list[Session]:
        return [*self.parts.registry.sessions.values()]

    def end(self, session: Session) -> None:
        self.ended.append(session)
        self.parts.registry.remove(session)

    def revocation(self, value: str, kind: RevocationKind = "user", tenant: str = "default") -> Revocation:
        """Make a revocation of all tokens that were issued before now."""
        now = self.parts.clock.now_ms() + 1
        before = now if kind in ("user", "tenant") else 0
        return Revocation(tenant, kind, value, self.expires_at(now), before)

    async def is_admitted(self, user: str, session: str | None = None, *, age_s: int = 0, **claims: Any) -> bool:
        """Return whether a token that was issued `age_s` seconds ago is admitted."""
        given = {"issued_at": self.parts.clock.now_ms() - age_s * 1000} | claims
        try:
            await self.admit(self.parts.grants(user, **given), session)
        except TokenRevoked:
            return False
        return True


async def elsewhere(parts: NodeParts, user: str) -> None:
    """Give a user a session on another node."""
    node = parts.engine.other_node(OTHER)
    ref = SessionEpoch(f"{OTHER}-{user}", node, 1)
    await MemoryEngine.touch(parts.engine, "default", user, ref, "tablet", False, None)


def lingers(client: Client) -> Session:
    client.session.connection = None
    return client.session


# --- revoking ---


@in_virtual_time
async def test_all_sessions_of_a_revoked_user_end_and_open_sockets_are_counted(parts: NodeParts) -> None:
    service = Service(parts)
    phone, tablet, bob, other = (
        await parts.online("ann"),
        await parts.online("ann", "tablet"),
        await parts.online("bob"),
        await parts.online("ann", tenant="acme"),
    )
    gone = lingers(parts.session("ann", "old"))
    assert await service.revoke(service.revocation("ann")) == 2
    assert [await client.closed() for client in (phone, tablet, bob, other)] == [Close.REVOKED] * 2 + [None] * 2
    assert service.ended == [gone]
    assert [kept.value for _, kept in await parts.store.revocations(0, 10)] == ["ann"]


@in_virtual_time
async def test_a_token_that_was_issued_after_the_revocation_counts(parts: NodeParts) -> None:
    service = Service(parts)
    await service.revoke(service.revocation("ann"))
    assert not await service.is_admitted("ann")
    await pass_time(1)
    assert await service.is_admitted("ann")
    client = await parts.online("ann")
    assert not service.recheck(client.session)


@in_virtual_time
async def test_a_revoked_session_ends_and_its_token_does_not_come_back(parts: NodeParts) -> None:
    service = Service(parts)
    ann, tablet = await parts.online("ann", token_id="t1"), await parts.online("ann", token_id="t2")
    assert await service.revoke(service.revocation(ann.session.id, "session"), "ann") == 1
    await settle()
    assert [await client.closed() for client in (ann, tablet)] == [Close.REVOKED, None]
    assert not await service.is_admitted("ann", token_id="t1")
    assert not await service.is_admitted("ann", ann.session.id, token_id="t3")
    assert await service.is_admitted("ann", token_id="t2")


@in_virtual_time
async def test_a_revoked_token_ends_its_sessions_in_its_tenant_only(parts: NodeParts) -> None:
    service = Service(parts)
    ann, bob, other = (
        await parts.online("ann", token_id="t"),
        await parts.online("bob", token_id="u"),
        await parts.online("cid", token_id="t", tenant="acme"),
    )
    assert await service.revoke(service.revocation("t", "jti")) == 1
    assert [await client.closed() for client in (ann, bob, other)] == [Close.REVOKED, None, None]


@in_virtual_time
async def test_a_revoked_tenant_loses_all_its_sessions_and_everything_those_of_all_tenants(parts: NodeParts) -> None:
    service = Service(parts)
    users = [await parts.online(f"u{number}") for number in range(120)]
    other = await parts.online("ann", tenant="acme")
    assert await service.revoke(service.revocation("default", "tenant")) == 120
    assert [await client.closed() for client in users] == [Close.REVOKED] * 120
    assert await other.closed() is None
    assert await service.revoke(service.revocation(EVERY_TENANT, "tenant", EVERY_TENANT)) == 1


@in_virtual_time
async def test_a_revocation_waits_for_the_nodes_with_sessions_of_the_user(parts: NodeParts) -> None:
    service = Service(parts)
    await elsewhere(parts, "ann")
    await parts.online("ann")
    async with under_way(service.revoke(service.revocation("ann"))) as revoking:
        (message,) = parts.engine.sent_to(OTHER)
        assert isinstance(message, Revoked)
        assert (message.asker, revoking.done()) == (parts.incarnation, False)
        parts.engine.publish(Topic("node", "", parts.incarnation), Acknowledged(message.number, OTHER, 3))
    assert await revoking == 4


@in_virtual_time
async def test_nodes_without_sessions_of_the_user_are_notified_without_waiting_for_them(parts: NodeParts) -> None:
    service = Service(parts)
    parts.engine.other_node(OTHER)
    revocation = service.revocation("ann")
    assert await service.revoke(revocation) == 0
    assert parts.engine.sent_to(OTHER) == [Revoked(revocation)]


@in_virtual_time
async def test_a_node_that_does_not_answer_makes_the_revocation_unsure(parts: NodeParts) -> None:
    service = Service(parts)
    await elsewhere(parts, "ann")
    here = await parts.online("ann")
    began = parts.clock.monotonic()
    with pytest.raises(EngineUnavailable, match=OTHER):
        await service.revoke(service.revocation("ann"))
    assert round(parts.clock.monotonic() - began, 1) == WITHIN_S
    assert await here.closed() == Close.REVOKED
    assert not await service.is_admitted("ann", age_s=60)


@in_virtual_time
async def test_after_a_loss_in_the_engine_a_revocation_waits_for_all_nodes_that_lived_before(parts: NodeParts) -> None:
    service = Service(parts)
    await elsewhere(parts, "ann")
    parts.engine.lose()
    parts.engine.restoring = True
    async with under_way(service.revoke(service.revocation("ann"))) as revoking:
        (message,) = parts.engine.sent_to(OTHER)
        assert isinstance(message, Revoked)
        assert (message.asker, revoking.done()) == (parts.incarnation, False)
        parts.engine.publish(Topic("node", "", parts.incarnation), Acknowledged(message.number, OTHER, 1))
    assert await revoking == 1


@in_virtual_time
async def test_a_revoked_tenant_waits_for_nodes_whose_entries_the_engine_has_lost(
    parts: NodeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(parts)
    parts.engine.other_node(OTHER)

    async def nodes() -> list[NodeInfo]:
        return []

    monkeypatch.setattr(parts.engine, "nodes", nodes)
    with pytest.raises(EngineUnavailable, match=OTHER):
        await service.revoke(service.revocation("default", "tenant"))


# --- revocations by other nodes ---


@in_virtual_time
async def test_a_revocation_of_another_node_closes_and_is_acknowledged(parts: NodeParts) -> None:
    service = Service(parts)
    ann = await parts.online("ann")
    parts.engine.publish(Topic("node", "", parts.incarnation), Revoked(service.revocation("ann"), OTHER, 7))
    assert await ann.closed() == Close.REVOKED
    assert parts.engine.sent_to(OTHER) == [Acknowledged(7, parts.incarnation, 1)]
    parts.engine.publish(Topic("node", "", parts.incarnation), Revoked(service.revocation("ann")))
    assert len(parts.engine.sent_to(OTHER)) == 1


@in_virtual_time
async def test_a_revoked_tenant_is_acknowledged_when_its_sessions_have_left(parts: NodeParts) -> None:
    service = Service(parts)
    ann = await parts.online("ann")
    parts.receive(Topic("node", "", parts.incarnation), Revoked(service.revocation("default", "tenant"), OTHER, 7))
    await pass_time(1)
    assert (await ann.closed(), parts.engine.sent_to(OTHER)) == (Close.REVOKED, [])
    parts.registry.remove(ann.session)
    await pass_time(0.1)
    assert parts.engine.sent_to(OTHER) == [Acknowledged(7, parts.incarnation, 1)]


# --- hellos ---


@in_virtual_time
async def test_a_hello_reads_what_was_written_past_this_node_at_most_once_a_second(parts: NodeParts) -> None:
    service = Service(parts)
    await service.start()
    before = parts.store.count("revocations")
    await parts.store.put_revocation(service.revocation("ann"))
    await asyncio.gather(*(service.is_admitted(f"u{number}") for number in range(50)))
    assert (await service.is_admitted("ann", age_s=60), parts.store.count("revocations")) == (True, before)
    await pass_time(FRESH_S)
    admitted = await asyncio.gather(*(service.is_admitted(user, age_s=60) for user in ("ann", "bob", "ann")))
    assert (admitted, parts.store.count("revocations")) == ([False, True, False], before + 1)


@in_virtual_time
async def test_while_the_store_is_away_what_is_known_counts_and_hellos_do_not_wait_for_it(parts: NodeParts) -> None:
    service = Service(parts)
    await service.revoke(service.revocation("ann"))
    parts.store.away = {"revocations", "find_revocations"}
    await pass_time(2 * FRESH_S)
    assert not await service.is_admitted("ann", age_s=60)
    assert await service.is_admitted("bob", issued_at=None)
    for _ in range(10):
        await service.is_admitted("cid")
    assert parts.store.count("revocations") == 1


@in_virtual_time
async def test_a_token_that_could_outlive_its_revocation_is_refused(parts: NodeParts) -> None:
    service, now = Service(parts), parts.clock.now_ms()
    await service.admit(parts.grants("ann", issued_at=now, expires_at=now + LONGEST_MS))
    for issued_at in (now, None):
        with pytest.raises(TokenError, match="7200 s"):
            await service.admit(parts.grants("ann", issued_at=issued_at, expires_at=now + LONGEST_MS + 1))


@in_virtual_time
async def test_tokens_without_a_date_cause_no_read_while_the_store_has_no_revocation(parts: NodeParts) -> None:
    service, ended = Service(parts), parts.clock.now_ms() - 1
    await service.start()
    assert await service.is_admitted("ann", issued_at=None)
    assert parts.store.count("find_revocations") == 0
    # Written past this node, and expired: only tokens without a date can be older.
    await parts.store.put_revocation(Revocation("default", "user", "ann", ended, ended))
    await pass_time(FRESH_S)
    assert not await service.is_admitted("ann", issued_at=None)
    await pass_time(FRESH_S)
    assert not await service.is_admitted("ann", issued_at=None)
    assert await service.is_admitted("ann")


@in_virtual_time
async def test_a_node_that_starts_with_ended_revocations_applies_them_to_tokens_without_a_date(
    parts: NodeParts,
) -> None:
    service, ended = Service(parts), parts.clock.now_ms() - 1
    await parts.store.put_revocation(Revocation("default", "user", "ann", ended, ended))
    await service.start()
    assert not await service.is_admitted("ann", issued_at=None)
    assert await service.is_admitted("bob", issued_at=None)


@in_virtual_time
async def test_a_token_without_a_date_is_refused_by_a_revocation_that_has_ended(parts: NodeParts) -> None:
    service = Service(parts)
    await service.revoke(service.revocation("ann"))
    await pass_time(LONGEST_MS / 1000 + 1)
    assert await service.is_admitted("ann")
    assert not await service.is_admitted("ann", issued_at=None)
    assert await service.is_admitted("bob", issued_at=None)


# --- lost messages ---


@in_virtual_time
async def test_sessions_end_when_a_revocation_is_found_in_the_store_without_a_notification(parts: NodeParts) -> None:
    service, ann = Service(parts), await parts.online("ann")
    await service.start()
    await parts.store.put_revocation(service.revocation("ann"))
    await pass_time(0.9 * EVERY_S - 1)
    assert await ann.closed() is None
    await pass_time(0.1 * EVERY_S + 2)
    assert await ann.closed() == Close.REVOKED


@in_virtual_time
async def test_after_a_gap_of_the_bus_the_store_is_read_at_once(parts: NodeParts) -> None:
    service, ann = Service(parts), await parts.online("ann")
    await service.start()
    await parts.store.put_revocation(service.revocation("ann"))
    service.refresh()
    assert await ann.closed() == Close.REVOKED


@in_virtual_time
async def test_a_hello_waits_for_the_read_under_way_and_makes_none_of_its_own(parts: NodeParts) -> None:
    service = Service(parts)
    await parts.store.put_revocation(service.revocation("ann"))
    async with held(parts.store, "revocations") as read:
        service.refresh()
        await read.reached()
        async with under_way(service.is_admitted("ann", age_s=60)) as hello:
            assert not hello.done()
            read.release()
    assert (await hello, parts.store.count("revocations")) == (False, 1)


@in_virtual_time
async def test_a_lone_server_confirms_a_revocation_when_its_sessions_have_left(parts: NodeParts) -> None:
    service, ann = Service(parts, alone=True), await parts.online("ann")
    await service.start()
    await parts.store.put_revocation(service.revocation("ann"))
    await pass_time(EVERY_ALONE_S + 0.1)
    assert await ann.closed() == Close.REVOKED
    assert [args[0] for args in parts.store.made("confirm_revocations")] == [0]
    parts.registry.remove(ann.session)
    await pass_time(0.1)
    assert [args[0] for args in parts.store.made("confirm_revocations")] == [0, 1]


@in_virtual_time
async def test_a_lone_server_shows_that_it_runs_and_asks_a_store_that_is_away_less_often(parts: NodeParts) -> None:
    service = Service(parts, alone=True)
    await service.start()
    await pass_time(2.5 * EVERY_S)
    assert len(parts.store.made("confirm_revocations")) == 3
    reads = parts.store.count("revocations")
    assert reads > 2 * EVERY_S / EVERY_ALONE_S
    parts.store.away = {"revocations"}
    await pass_time(2 * EVERY_S)
    assert parts.store.count("revocations") - reads <= 4
