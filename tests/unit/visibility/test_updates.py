"""Changes of visibility: stored, applied by all nodes, and found again after a lost message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

import pytest

from greendot.engine.messages import Acknowledged, Topic, VisibilityChanged
from greendot.engine.results import NodeInfo
from greendot.errors import EngineUnavailable, GreendotError, Refused, StoreUnavailable
from greendot.node.cluster_rpc import WITHIN_S
from greendot.protocol.codes import Err
from greendot.visibility import updates
from greendot.visibility.updates import AGAIN_S, RETRY_S
from greendot.visibility.webhook import REST_S
from unit.service_parts import ANSWER_S, TENANT, TICK_S, Parts, in_virtual_time

ANN = (TENANT, "ann")


class Consumer:
    """Service in which bob sees ann. Each review is recorded with bob's view at that time."""

    def __init__(self, parts: Parts, tenant: str = TENANT) -> None:
        self.parts = parts
        self.tenant = tenant
        self.reviews: list[tuple[Collection[str] | None, str]] = []
        self.failures = 0  # number of reviews that fail
        parts.visibility.consumers.append(self)

    async def in_use(self, tenant: str) -> AsyncIterator[list[str]]:
        yield ["ann", "bob"] if tenant == self.tenant else []

    async def review(self, tenant: str, users: Collection[str] | None) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("away")
        await self.parts.visibility.know(tenant, ["bob"], ["ann"])
        self.reviews.append((users, self.parts.visibility.see(tenant, "bob", "ann")))


async def hide(parts: Parts, *others: str) -> None:
    """Hide ann, in the store only."""
    await parts.store.put_privacy(*ANN, hide_from=frozenset(others))


def receive(parts: Parts) -> None:
    """Deliver a change of ann from another node, as the bus does."""
    parts.receive(Topic("node", "", parts.incarnation), VisibilityChanged(*ANN, "asker", 7))


@in_virtual_time
async def test_a_change_is_made_when_the_nodes_have_acted_on_it(parts: Parts) -> None:
    consumer = Consumer(parts)
    await parts.visibility.know(TENANT, ["bob"], ["ann"])
    kept = await parts.visibility_updates.set_privacy(ANN, None, ["bob", "ann", "bob"])
    assert kept.hide_from == {"bob"}  # a user cannot hide from oneself
    assert consumer.reviews == [(["ann"], "hidden")]
    await parts.visibility_updates.set_privacy(ANN, "hidden", [])
    assert consumer.reviews[1:] == [(["ann"], "without_last_seen")]


@in_virtual_time
async def test_a_question_for_the_own_privacy_changes_nothing(parts: Parts) -> None:
    assert (await parts.visibility_updates.set_privacy(ANN, None, None)).is_plain
    await hide(parts, "bob")
    assert (await parts.visibility_updates.set_privacy(ANN, None, None)).hide_from == {"bob"}
    assert (parts.engine.published, "put_privacy" in parts.store.take_calls()[2:]) == ([], False)


@pytest.mark.parametrize(("state", "is_made"), [("dead", True), ("live", False)])
@in_virtual_time
async def test_a_node_that_lives_and_does_not_answer_leaves_the_change_unsure_but_kept(
    parts: Parts, state: str, is_made: bool
) -> None:
    parts.engine.others.append(NodeInfo("other", state, None, None))  # type: ignore[arg-type]
    began = parts.now()
    if is_made:
        await parts.visibility_updates.set_privacy(ANN, None, ["bob"])
    else:
        with pytest.raises(EngineUnavailable):
            await parts.visibility_updates.set_privacy(ANN, None, ["bob"])
        assert parts.now() - began == pytest.approx(WITHIN_S, abs=TICK_S)
    assert (await parts.store.privacies([ANN]))[ANN].hide_from == {"bob"}


@in_virtual_time
async def test_nodes_whose_entries_the_engine_has_lost_act_on_a_change_too(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(parts)
    await parts.visibility.know(TENANT, ["bob"], ["ann"])

    async def nodes() -> list[NodeInfo]:
        return []

    monkeypatch.setattr(parts.engine, "nodes", nodes)
    await parts.visibility_updates.set_privacy(ANN, None, ["bob"])
    assert consumer.reviews == [(["ann"], "hidden")]


@in_virtual_time
async def test_contacts_are_limited_and_nodes_are_notified_of_each_change(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "MOST_CONTACTS", 1)
    await parts.visibility_updates.put_contact(ANN, "bob", 1)
    with pytest.raises(Refused) as refused:
        await parts.visibility_updates.put_contact(ANN, "cid", 1)
    assert (refused.value.code, len(parts.engine.sent(VisibilityChanged))) == (Err.TOO_MANY, 1)
    await parts.visibility_updates.remove_contact(ANN, "bob")
    await parts.visibility_updates.put_contact(ANN, "cid", 1)
    assert len(parts.engine.sent(VisibilityChanged)) == 3


@in_virtual_time
async def test_other_rooms_of_a_user_matter_only_where_shared_rooms_do(parts: Parts) -> None:
    for tenant in (TENANT, "contacts", "shared_rooms"):
        await parts.visibility_updates.members_changed(tenant, "ann")
    assert [message.tenant for message in parts.engine.sent(VisibilityChanged)] == ["shared_rooms"]


@in_virtual_time
async def test_a_change_from_another_node_is_acknowledged_after_it_was_acted_on(parts: Parts) -> None:
    consumer = Consumer(parts)
    await parts.visibility.know(TENANT, ["bob"], ["ann"])
    await hide(parts, "bob")
    async with parts.store.holding("privacies") as held:
        receive(parts)
        await held.reached()
        assert parts.engine.sent(Acknowledged) == []
    await parts.settle()
    assert consumer.reviews == [(["ann"], "hidden")]
    assert parts.engine.published[-1] == (Topic("node", "", "asker"), Acknowledged(7, parts.incarnation))


@in_virtual_time
async def test_a_node_without_users_of_the_tenant_acknowledges_a_change_at_once(parts: Parts) -> None:
    consumer = Consumer(parts)
    parts.store.take_calls()
    receive(parts)
    await parts.settle()
    assert parts.engine.sent(Acknowledged) == [Acknowledged(7, parts.incarnation)]
    assert (consumer.reviews, parts.store.take_calls()) == ([], [])


@in_virtual_time
async def test_a_change_is_received_before_it_is_acknowledged(parts: Parts) -> None:
    parts.receive(Topic("node", "", parts.incarnation), VisibilityChanged(*ANN, "asker", 7, reports_arrival=True))
    assert parts.engine.sent(Acknowledged) == [Acknowledged(7, parts.incarnation, is_arrival=True)]
    assert parts.rpc.prompt == {"asker"}
    await parts.settle()
    assert parts.engine.sent(Acknowledged)[1:] == [Acknowledged(7, parts.incarnation)]


@in_virtual_time
async def test_nodes_greet_each_other_once(parts: Parts) -> None:
    consumer = Consumer(parts)
    parts.engine.others.append(NodeInfo("other", "live", None, None))
    greeting = (Topic("node", "", "other"), VisibilityChanged("", "", parts.incarnation, 0, reports_arrival=True))
    parts.visibility_updates.start()
    assert parts.engine.published == [greeting]
    parts.receive(Topic("node", "", parts.incarnation), VisibilityChanged("", "", "other", 0, reports_arrival=True))
    await parts.pass_s(AGAIN_S)
    assert parts.engine.sent(VisibilityChanged) == [greeting[1]]
    assert (parts.rpc.prompt, consumer.reviews) == ({"other"}, [])
    parts.engine.others.clear()
    await parts.pass_s(AGAIN_S)
    assert parts.rpc.prompt == set()


@in_virtual_time
async def test_a_change_that_cannot_be_read_hides_the_user_until_it_can(parts: Parts) -> None:
    consumer = Consumer(parts)
    await parts.visibility.know(TENANT, ["bob"], ["ann"])
    parts.store.thread.is_away = True
    receive(parts)
    await parts.pass_s(2.5 * RETRY_S)
    assert consumer.reviews == [(["ann"], "hidden")]
    assert parts.engine.sent(Acknowledged) == [Acknowledged(7, parts.incarnation)]  # hidden from all: done
    parts.store.thread.is_away = False
    await parts.pass_s(RETRY_S)
    assert consumer.reviews[1:] == [(["ann"], "full")]
    await parts.pass_s(5 * RETRY_S)
    assert len(consumer.reviews) == 2


@in_virtual_time
async def test_a_failed_review_is_not_acknowledged_and_everything_is_reviewed_later(parts: Parts) -> None:
    consumer = Consumer(parts)
    await parts.visibility.know(TENANT, ["bob"], ["ann"])
    consumer.failures = 1
    receive(parts)
    await parts.pass_s(REST_S - TICK_S)
    assert (consumer.reviews, parts.engine.sent(Acknowledged)) == ([], [])
    await parts.pass_s(2 * TICK_S)
    assert consumer.reviews == [(None, "full")]
    await parts.pass_s(2 * REST_S)
    assert len(consumer.reviews) == 1


@in_virtual_time
async def test_a_privacy_change_without_a_message_is_found_by_its_revision(parts: Parts) -> None:
    consumer = Consumer(parts)
    await parts.connect("bob")
    await parts.visibility.know(TENANT, ["bob"], ["ann"])
    parts.visibility_updates.start()
    await hide(parts, "bob")
    await parts.pass_s(AGAIN_S + TICK_S)
    assert consumer.reviews == [({"ann"}, "hidden")]
    await hide(parts, "cid")
    parts.visibility_updates.lost()  # messages may have been lost: checked at once
    await parts.settle()
    assert consumer.reviews[1:] == [({"ann"}, "full")]
    parts.store.take_calls()
    await parts.pass_s(AGAIN_S)
    assert parts.store.take_calls() == ["changes"]  # repeated, and nothing changed
    assert len(consumer.reviews) == 2


@in_virtual_time
async def test_looking_at_everything_goes_on_after_a_failure(parts: Parts) -> None:
    consumer = Consumer(parts)
    await parts.connect("bob")
    await parts.visibility.know(TENANT, ["bob"], ["ann"])
    parts.visibility_updates.start()
    await hide(parts, "bob")
    parts.store.thread.is_away = True
    await parts.pass_s(AGAIN_S + TICK_S)
    parts.store.thread.is_away = False
    await parts.pass_s(AGAIN_S)
    assert consumer.reviews == [({"ann"}, "hidden")]


@in_virtual_time
async def test_answers_of_an_app_are_asked_for_before_they_are_too_old(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert AGAIN_S <= ANSWER_S / 2
    monkeypatch.setattr(parts.webhook, "_keep_s", {"": 4.0})
    consumer = Consumer(parts, "ask")
    await parts.connect("bob", tenant="ask")
    await parts.visibility.know("ask", ["bob"], ["ann"])
    parts.visibility_updates.start()
    await parts.pass_s(10 + TICK_S)
    assert 5 <= len(consumer.reviews) <= 6  # every two seconds, or a little more often


@in_virtual_time
async def test_an_app_that_does_not_answer_is_asked_again_after_a_rest(parts: Parts) -> None:
    class Away:
        calls = 0

        async def ask(self, body: bytes) -> bytes:
            self.calls += 1
            raise GreendotError("away")

    app = parts.apps["ask"] = Away()
    consumer = Consumer(parts, "ask")
    assert parts.visibility_updates.bus  # its creation registers it with the webhook
    for viewer in ("bob", "cid"):
        await parts.visibility.know("ask", [viewer], ["ann"])
    assert app.calls == 2
    await parts.pass_s(REST_S + TICK_S)
    assert (app.calls, consumer.reviews) == (3, [(None, "hidden")])  # one review for both failures
    await parts.pass_s(REST_S)
    assert (app.calls, len(consumer.reviews)) == (4, 2)


@in_virtual_time
async def test_an_app_whose_failures_are_spread_is_asked_again_when_its_rest_is_over(parts: Parts) -> None:
    asked: list[float] = []

    class Away:
        async def ask(self, body: bytes) -> bytes:
            asked.append(parts.clock.monotonic())
            raise GreendotError("away")

    parts.apps["ask"] = Away()
    Consumer(parts, "ask")
    assert parts.visibility_updates.bus
    for viewer in ("bob", "cid", "dan"):  # the third failure in a row opens the circuit breaker
        await parts.visibility.know("ask", [viewer], ["ann"])
        await parts.pass_s(1.0)
    await parts.pass_s(REST_S + TICK_S)
    assert len(asked) == 4
    assert REST_S <= asked[3] - asked[2] <= REST_S + 1.0
