"""Notifications over HTTP: created once despite retries, all refused if one is wrong, shown with their history."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from e2e.processes import Answer
from e2e.test_http import Backend, backend, is_problem
from greendot.protocol.decoding import MAX_DEPTH
from greendot.store.inbox import Inbox
from greendot.testing import Served
from greendot.testing.turns import turns

GOOD: dict[str, Any] = {"user": "ann", "kind": "news", "body": {"text": "hi"}}
PATH = "/v1/notifications"


async def nothing_was_written(served: Served, user: str = "ann") -> None:
    assert await served.node.store.inbox("default", user) == Inbox()
    assert await served.node.store.recount(fix=False) == []


async def test_one_is_made_and_shown() -> None:
    async with backend() as (served, api):
        answer = await api("POST", PATH, GOOD | {"ttl_s": 60})
        assert answer.status == 201
        made = answer.json()
        assert made == {"id": made["id"], "seq": 1, "new": True}
        now = served.clock.now_ms()
        shown = (await api("GET", "/v1/users/ann/inbox")).json()
        (entry,) = shown.pop("notifications")
        assert shown == {"head": 1, "unread": 1, "unseen": 1}
        states = dict.fromkeys(("live_at", "push_at", "seen_at", "read_at", "archived_at", "acked_at"))
        assert entry == states | {
            "seq": 1,
            "id": made["id"],
            "kind": "news",
            "body": {"text": "hi"},
            "created_at": now,
            "expires_at": now + 60_000,
            "ack": False,
        }


@pytest.mark.parametrize("body", [None, 0, "", [], {"a": [1, {"b": None}]}, "é\u0000\U0001f600", 1e300, "x" * 60_000])
async def test_a_body_is_any_json_value_and_comes_as_it_was_sent(body: Any) -> None:
    async with backend() as (served, api):
        ann = await served.client("ann")
        assert (await api("POST", PATH, GOOD | {"body": body})).status == 201
        assert (await ann.receive("notification.created"))["data"]["body"] == body
        (entry,) = (await api("GET", "/v1/users/ann/inbox")).json()["notifications"]
        assert entry["body"] == body


async def test_the_same_key_is_the_same_notification() -> None:
    async with backend() as (served, api):
        first = await api("POST", PATH, GOOD | {"key": "k1"})
        again = await api("POST", PATH, GOOD | {"key": "k1", "body": "another"})
        assert (first.status, again.status) == (201, 200)
        assert again.json() == first.json() | {"new": False}
        other = await api("POST", PATH, GOOD | {"key": "k1", "user": "bob"})
        assert (other.status, other.json()["seq"]) == (201, 1)
        by_header = [await api("POST", PATH, GOOD, Idempotency_Key="h1") for _ in range(2)]
        assert [(answer.status, answer.json()["seq"]) for answer in by_header] == [(201, 2), (200, 2)]
        keyless = [(await api("POST", PATH, GOOD)).json()["seq"] for _ in range(2)]
        assert keyless == [3, 4]
        made = await asyncio.gather(*(api("POST", PATH, GOOD | {"key": "k9"}) for _ in range(20)))
        assert sum(answer.json()["new"] for answer in made) == 1
        assert {answer.json()["seq"] for answer in made} == {5}
        assert await served.node.store.recount(fix=False) == []


async def test_a_list_is_answered_in_order_and_may_be_repeated() -> None:
    async with backend() as (_, api):
        listed = [GOOD | {"user": user, "key": key} for user, key in (("ann", "a"), ("bob", "a"), ("ann", "b"))]
        answer = await api("POST", PATH, {"notifications": [*listed, listed[0]]})
        assert answer.status == 201
        made = answer.json()["notifications"]
        assert [(m["seq"], m["new"]) for m in made] == [(1, True), (1, True), (2, True), (1, False)]
        again = await api("POST", PATH, {"notifications": listed})
        assert (again.status, [m["id"] for m in again.json()["notifications"]]) == (200, [m["id"] for m in made[:3]])
        keyless = {"notifications": [GOOD, GOOD]}
        twice = [(await api("POST", PATH, keyless, Idempotency_Key="batch-1")) for _ in range(2)]
        assert [answer.status for answer in twice] == [201, 200]
        assert [[m["seq"] for m in answer.json()["notifications"]] for answer in twice] == [[3, 4]] * 2


async def test_ten_thousand_notifications_in_one_call_do_not_delay_other_requests() -> None:
    """Other requests are answered meanwhile: the loop is never held for long."""
    async with backend() as (served, api):
        ann = await served.client("user7")
        many = [GOOD | {"user": f"user{n % 2_000}", "body": {"n": n, "text": "x" * 100}} for n in range(10_000)]
        body = msgspec.json.encode({"notifications": many})
        async with turns() as measured:
            answer = await api("POST", PATH, body)
        assert answer.status == 201
        assert len(answer.json()["notifications"]) == 10_000
        await served.settle()
        created = [frame["data"]["seq"] for frame in await ann.quiet() if frame["type"] == "notification.created"]
        assert created == [1, 2, 3, 4, 5]
        assert measured.longest_s < 0.25
        assert await served.node.store.recount(fix=False) == []


# --- refused requests ---

WRONG: dict[str, tuple[Any, str]] = {
    "nothing": ({}, "user"),
    "no user": ({"kind": "news", "body": 1}, "user"),
    "no kind": ({"user": "ann", "body": 1}, "kind"),
    "no body": ({"user": "ann", "kind": "news"}, "body"),
    "a user that is no id": (GOOD | {"user": "a/b"}, "user"),
    "a kind that is no id": (GOOD | {"kind": ""}, "kind"),
    "a key that is no id": (GOOD | {"key": "a b"}, "key"),
    "a user that is no text": (GOOD | {"user": 7}, "user"),
    "a negative end": (GOOD | {"expires_at": -1}, "expires_at"),
    "an end beyond all time": (GOOD | {"expires_at": 2**63}, "expires_at"),
    "an end in the past": (GOOD | {"expires_at": 1}, "expires_at"),
    "no time at all": (GOOD | {"ttl_s": 0}, "ttl_s"),
    "a time beyond all": (GOOD | {"ttl_s": 1e12}, "ttl_s"),
    "two ends": (GOOD | {"ttl_s": 5, "expires_at": 2**53}, "expires_at"),
    "an empty list": ({"notifications": []}, "notifications"),
    "a list that is none": ({"notifications": {"a": 1}}, "notifications"),
    "a list of something else": ({"notifications": [1]}, "notifications[0]"),
    "a list too long": ({"notifications": [GOOD] * 10_001}, "notifications"),
    "one of a list": ({"notifications": [GOOD, GOOD, GOOD | {"user": "a b"}]}, "notifications[2].user"),
    "one of a list without a body": ({"notifications": [GOOD, {"user": "ann", "kind": "k"}]}, "notifications[1]"),
    "one of a list that has ended": ({"notifications": [GOOD | {"expires_at": 5}]}, "notifications[0].expires_at"),
}


@pytest.mark.parametrize(("body", "named"), WRONG.values(), ids=WRONG.keys())
async def test_what_is_wrong_is_named_and_nothing_is_written(body: Any, named: str) -> None:
    async with backend() as (served, api):
        ann = await served.client("ann")
        assert f"`{named}`" in is_problem(await api("POST", PATH, body), 400, "bad_field")
        await nothing_was_written(served)
        assert await ann.quiet() == []


NOT_JSON: dict[str, bytes] = {
    "prose": b"hello",
    "half an object": b'{"user": "ann"',
    "not UTF-8": b'{"user": "ann", "kind": "k", "body": "\xff"}',
    "half a surrogate pair": b'{"user": "ann", "kind": "k", "body": "\\ud800"}',
    "deeper than anybody reads": b'{"user": "ann", "kind": "k", "body": ' + b"[" * 100_000,
    "a list cut short": b'{"notifications": [{"user": "ann", "kind": "k", "body": 1}, ',
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
async def test_what_is_not_json_is_refused(body: bytes) -> None:
    async with backend() as (served, api):
        is_problem(await api("POST", PATH, body), 400, "bad_frame")
        await nothing_was_written(served)


async def test_too_large_a_body_is_refused() -> None:
    async with backend() as (served, api):
        large = "x" * (64 * 1024)
        is_problem(await api("POST", PATH, GOOD | {"body": large}), 413, "bad_field")
        is_problem(await api("POST", PATH, {"notifications": [GOOD, GOOD | {"body": large}]}), 413, "bad_field")
        is_problem(await api("POST", PATH, b" " * (16 * 1024 * 1024 + 1)), 413)
        await nothing_was_written(served)


async def test_a_body_that_others_cannot_read_is_refused() -> None:
    async with backend() as (served, api):
        body: list[Any] = []
        for _ in range(MAX_DEPTH - 1):
            body = [body]
        assert (await api("POST", PATH, GOOD | {"body": body})).status == 201
    async with backend() as (served, api):
        said = is_problem(await api("POST", PATH, GOOD | {"body": [body]}), 400, "bad_field")
        assert "nested at most 64 levels" in said
        is_problem(await api("POST", PATH, {"notifications": [GOOD, GOOD | {"body": [body]}]}), 400, "bad_field")
        vast = is_problem(await api("POST", PATH, GOOD | {"body": msgspec.Raw(b"[1e309]")}), 400, "bad_field")
        assert "a number beyond 1.8e308" in vast
        await nothing_was_written(served)


@pytest.mark.parametrize("key", ["a b", "../x", "-a", "x" * 129])
async def test_an_idempotency_key_that_is_no_id_is_refused(key: str) -> None:
    async with backend() as (served, api):
        is_problem(await api("POST", PATH, GOOD, Idempotency_Key=key), 400, "bad_field")
        await nothing_was_written(served)


async def test_an_idempotency_key_too_long_for_a_list_is_refused() -> None:
    async with backend() as (served, api):
        answer = await api("POST", PATH, {"notifications": [GOOD]}, Idempotency_Key="x" * 128)
        is_problem(answer, 400, "bad_field")
        await nothing_was_written(served)


QUERIES = "limit=0 limit=301 limit=x after=-1 before=1.5 after=99999999999 after=1&before=2 filter=mine filter="


@pytest.mark.parametrize("query", QUERIES.split())
async def test_a_page_that_cannot_be_is_refused(query: str) -> None:
    async with backend() as (_, api):
        is_problem(await api("GET", f"/v1/users/ann/inbox?{query}"), 400, "bad_field")


async def test_an_inbox_is_the_users_of_the_keys_tenant() -> None:
    async with backend() as (served, api):
        elsewhere = await served.client("ann", claims={"tenant": "other"})
        await api("POST", PATH, GOOD)
        await served.settle()
        assert await elsewhere.quiet() == []
        assert (await elsewhere.request(type="inbox.list"))["notifications"] == []
        assert (await api("GET", "/v1/users/nobody/inbox")).json() == {
            "notifications": [],
            "head": 0,
            "unread": 0,
            "unseen": 0,
        }
        is_problem(await api("GET", "/v1/users/a b/inbox".replace(" ", "%20")), 400, "bad_field")


async def test_pages_over_http_go_both_ways_and_by_filter() -> None:
    async with backend() as (served, api):
        await api("POST", PATH, {"notifications": [GOOD] * 10})
        store, now = served.node.store, served.clock.now_ms()
        await store.mark("default", "ann", "read", through=4, at=now)
        await store.mark("default", "ann", "archive", ids=[(await seen(api, "?before=2"))[0][1]], at=now)

        async def numbers(query: str) -> list[int]:
            return [seq for seq, _ in await seen(api, query)]

        assert await numbers("") == [*range(2, 11)]
        assert await numbers("?limit=3") == [8, 9, 10]
        assert await numbers("?after=0&limit=3") == [2, 3, 4]
        assert await numbers("?before=5&limit=2") == [3, 4]
        assert await numbers("?filter=unread&limit=300") == [*range(5, 11)]
        assert await numbers("?filter=archived") == [1]


async def seen(api: Backend, query: str) -> list[tuple[int, str]]:
    answer: Answer = await api("GET", f"/v1/users/ann/inbox{query}")
    return [(entry["seq"], entry["id"]) for entry in answer.json()["notifications"]]


async def test_a_page_of_large_bodies_has_fewer_of_them() -> None:
    async with backend() as (_, api):
        large = GOOD | {"body": "x" * 60_000}
        await api("POST", PATH, {"notifications": [large] * 40})
        page = await seen(api, "?limit=300")
        assert 10 < len(page) < 20
        assert page[-1][0] == 40
        assert (await seen(api, f"?after={page[0][0] - 1}&limit=300"))[0] == page[0]


# --- other users' ids ---


async def test_marks_of_what_is_another_users_or_no_id_of_ours_change_nothing() -> None:
    async with backend() as (served, api):
        theirs = (await api("POST", PATH, GOOD | {"user": "bob"})).json()["id"]
        mine = (await api("POST", PATH, GOOD)).json()["id"]
        bob, ann = await served.client("bob"), await served.client("ann")
        strange = [theirs, "1-nothing", "1", "0-x", "99-x", f"{2**70}-x", mine + "x", mine.upper() + "Z"]
        for mark in ("seen", "read", "archive", "ack"):
            assert await ann.request(type=f"inbox.{mark}", ids=strange) == {"unread": 1, "unseen": 1}
        assert await bob.quiet() == []
        await served.advance(1)
        assert await ann.quiet() == []
        assert await ann.request(type="inbox.read", ids=[mine, *strange]) == {"unread": 0, "unseen": 0}
        assert (await api("GET", "/v1/users/bob/inbox")).json()["unread"] == 1
        assert await served.node.store.recount(fix=False) == []


async def test_a_token_that_may_only_listen_marks_its_inbox_all_the_same() -> None:
    async with backend() as (served, api):
        await api("POST", PATH, GOOD)
        ann = await served.client("ann", claims={"send": False})
        assert await ann.request(type="inbox.read", through=1) == {"unread": 0, "unseen": 0}
