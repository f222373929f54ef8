"""Visibility webhook of an app: requests, lifetime of answers, and failures, which hide all users."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec
import pytest

from greendot.errors import GreendotError
from greendot.testing import hold
from greendot.visibility import webhook
from greendot.visibility.webhook import FAILURES, REST_S
from unit.service_parts import ANSWER_S, TICK_S, Parts, in_virtual_time

ASK = "ask"  # the tenant with the webhook


class App:
    """App that allows these pairs of viewer and target."""

    def __init__(self, *visible: tuple[str, str]) -> None:
        self.visible = {*visible}
        self.requests: list[set[tuple[str, str]]] = []  # the pairs of each
        self.tenants: list[str] = []
        self.answer: bytes | Exception | None = None  # sent instead of a valid one

    async def ask(self, body: bytes) -> bytes:
        asked = msgspec.json.decode(body)
        self.tenants.append(asked["tenant"])
        pairs = {(question["viewer"], target) for question in asked["questions"] for target in question["targets"]}
        self.requests.append(pairs)
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or self.answering(self.visible & pairs)

    def answering(self, pairs: Iterable[tuple[str, str]]) -> bytes:
        return msgspec.json.encode({"answers": [{"viewer": viewer, "visible": [target]} for viewer, target in pairs]})


def app(parts: Parts, *visible: tuple[str, str], tenant: str = "") -> App:
    parts.apps[tenant] = made = App(*visible)
    return made


@in_virtual_time
async def test_questions_of_one_moment_are_one_request_and_each_is_asked_once(parts: Parts) -> None:
    client = app(parts, ("bob", "ann"))
    await asyncio.gather(*(parts.webhook.ask(ASK, ["bob", "cid"], ["ann", "bob"]) for _ in range(3)))
    assert client.requests == [{("bob", "ann"), ("cid", "ann"), ("cid", "bob")}]  # no pair of a user with oneself
    await parts.webhook.ask(ASK, ["bob"], ["ann"])
    assert len(client.requests) == 1
    answers = {viewer: parts.webhook.answer(ASK, viewer, "ann") for viewer in ("bob", "cid", "dan")}
    assert answers == {"bob": True, "cid": False, "dan": False}


@in_virtual_time
async def test_an_answer_counts_for_its_time_and_is_asked_for_again_after_half_of_it(parts: Parts) -> None:
    client = app(parts, ("bob", "ann"))
    await parts.webhook.ask(ASK, ["bob"], ["ann"])
    await parts.pass_s(ANSWER_S / 2 - 1)
    await parts.webhook.ask(ASK, ["bob"], ["ann"])
    assert len(client.requests) == 1
    await parts.pass_s(2)
    client.answer = GreendotError("away")
    await parts.webhook.ask(ASK, ["bob"], ["ann"])
    assert len(client.requests) == 2
    assert parts.webhook.answer(ASK, "bob", "ann")  # the last answer of the app
    await parts.pass_s(ANSWER_S / 2)
    assert not parts.webhook.answer(ASK, "bob", "ann")


@pytest.mark.parametrize("changed", ["ann", "bob"])
@in_virtual_time
async def test_an_answer_is_void_after_a_change_of_the_viewer_or_the_target(parts: Parts, changed: str) -> None:
    client = app(parts, ("bob", "ann"))
    await parts.webhook.ask(ASK, ["bob"], ["ann"])
    parts.webhook.forget(ASK, "cid")
    parts.webhook.forget("other", changed)
    assert parts.webhook.answer(ASK, "bob", "ann")
    parts.webhook.forget(ASK, changed)
    assert not parts.webhook.answer(ASK, "bob", "ann")
    await parts.webhook.ask(ASK, ["bob"], ["ann"])
    assert (len(client.requests), parts.webhook.answer(ASK, "bob", "ann")) == (2, True)


@in_virtual_time
async def test_an_answer_on_its_way_during_a_change_is_void_too(parts: Parts) -> None:
    client = app(parts, ("bob", "ann"))
    async with hold(client, "ask", at="after") as held:
        asking = asyncio.ensure_future(parts.webhook.ask(ASK, ["bob"], ["ann"]))
        await held.reached()
        parts.webhook.forget(ASK, "ann")
    await asking
    assert not parts.webhook.answer(ASK, "bob", "ann")


@pytest.mark.parametrize("answer", [GreendotError("away"), b"no JSON", b'{"answers": 1}'], ids=["away", "text", "type"])
@in_virtual_time
async def test_an_app_that_fails_shows_no_user_and_is_not_called_for_a_while_after_some_failures(
    parts: Parts, caplog: pytest.LogCaptureFixture, answer: bytes | Exception
) -> None:
    client = app(parts, ("bob", "ann"))
    client.answer = answer
    told: list[str] = []
    parts.webhook.listeners.append(told.append)
    with caplog.at_level(logging.INFO, "greendot"):
        for _ in range(FAILURES + 2):
            await parts.webhook.ask(ASK, ["bob"], ["ann"])
    assert (len(client.requests), parts.webhook.failures, told) == (FAILURES, FAILURES, [ASK] * FAILURES)
    assert not parts.webhook.answer(ASK, "bob", "ann")
    assert len(caplog.records) == 1  # one line for the outage
    client.answer = None
    await parts.pass_s(REST_S - TICK_S)
    await parts.webhook.ask(ASK, ["bob"], ["ann"])
    assert len(client.requests) == FAILURES
    await parts.pass_s(2 * TICK_S)
    await parts.webhook.ask(ASK, ["bob"], ["ann"])
    assert parts.webhook.answer(ASK, "bob", "ann")


@in_virtual_time
async def test_a_good_answer_ends_the_row_of_failures(parts: Parts) -> None:
    client = app(parts)
    for answer in [GreendotError("away")] * (FAILURES - 1) + [None] + [GreendotError("away")] * (FAILURES - 1):
        client.answer = answer
        parts.webhook.forget(ASK, "ann")
        await parts.webhook.ask(ASK, ["bob"], ["ann"])
    client.answer, client.visible = None, {("bob", "ann")}
    parts.webhook.forget(ASK, "ann")
    await parts.webhook.ask(ASK, ["bob"], ["ann"])
    assert parts.webhook.answer(ASK, "bob", "ann")


@in_virtual_time
async def test_pairs_that_were_not_asked_for_are_not_taken_from_an_answer(parts: Parts) -> None:
    client = app(parts)
    client.answer = client.answering([("bob", "ann"), ("bob", "cid"), ("eve", "ann")])
    await parts.webhook.ask(ASK, ["bob"], ["ann"])
    seen = [pair for pair in (("bob", "ann"), ("bob", "cid"), ("eve", "ann")) if parts.webhook.answer(ASK, *pair)]
    assert seen == [("bob", "ann")]


@in_virtual_time
async def test_tenants_ask_their_own_app_or_the_common_one_and_fail_apart(parts: Parts) -> None:
    own, common = app(parts, tenant=ASK), app(parts, ("bob", "ann"))
    own.answer = GreendotError("away")
    for _ in range(FAILURES + 1):
        await parts.webhook.ask(ASK, ["bob"], ["ann"])
    await parts.webhook.ask("other", ["bob"], ["ann"])
    assert (own.tenants, common.tenants) == ([ASK] * FAILURES, ["other"])
    assert (parts.webhook.answer(ASK, "bob", "ann"), parts.webhook.answer("other", "bob", "ann")) == (False, True)


@in_virtual_time
async def test_without_an_app_no_user_is_visible_and_no_failure_is_counted(parts: Parts) -> None:
    await parts.webhook.ask(ASK, ["bob"], ["ann"])
    assert (parts.webhook.answer(ASK, "bob", "ann"), parts.webhook.failures) == (False, 0)


@in_virtual_time
async def test_many_pairs_are_several_requests_and_no_more_than_the_bound(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "MOST_NAMES", 8)
    monkeypatch.setattr(webhook, "MOST_PAIRS", 7)
    client = app(parts, *(("bob", f"u{number}") for number in range(10)))
    await parts.webhook.ask(ASK, ["bob"], [f"u{number}" for number in range(10)])
    assert [len(pairs) for pairs in client.requests] == [2, 2, 2, 1]  # five bytes of names each
    assert sum(parts.webhook.answer(ASK, "bob", f"u{number}") for number in range(10)) == 7


@in_virtual_time
async def test_answers_are_forgotten_when_they_are_too_many_or_too_old(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "MOST_ANSWERS", 2)
    app(parts, *(("bob", f"u{number}") for number in range(3)))

    def seen() -> list[int]:
        return [number for number in range(3) if parts.webhook.answer(ASK, "bob", f"u{number}")]

    for target in ("u0", "u1"):
        await parts.webhook.ask(ASK, ["bob"], [target])
    assert seen() == [0, 1]
    await parts.webhook.ask(ASK, ["bob"], ["u2"])
    assert seen() == [1, 2]
    await parts.pass_s(ANSWER_S - 1)
    await parts.webhook.prune()
    assert seen() == [1, 2]
    parts.webhook.forget(ASK, "bob")
    await parts.webhook.prune()
    assert seen() == []  # the mark of a change is kept as long as an answer would be
