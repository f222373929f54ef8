"""Unknown names in HTTP requests: fields, query parameters and bodies that would otherwise be ignored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from backends import on_each_pair, serving_on
from e2e.processes import ask
from e2e.test_http import Backend, backend, is_problem
from greendot.app.http import KINDS
from greendot.http.operation import operations_of
from greendot.testing import serving
from greendot.testing.event_stream import EventStreamClient
from postgres_server import migrated_schema
from redis_servers import Proxy

NOTICE = {"user": "alice", "kind": "news", "body": 1}
UNKNOWN_FIELDS: list[tuple[str, str, dict[str, Any], str]] = [
    ("POST", "/v1/presence/query", {"users": ["alice"], "user": "bob"}, "`user`; did you mean `users`?"),
    ("PUT", "/v1/users/alice/status", {"state": "busy"}, "`state`; did you mean `status`?"),
    ("PUT", "/v1/users/alice/info", {"info": {"colour": "red"}, "nmae": "Al"}, "`nmae`; did you mean `name`?"),
    ("PUT", "/v1/users/alice/presence/mode", {"mode": "poll", "moed": 1}, "`moed`; did you mean `mode`?"),
    ("PUT", "/v1/users/alice/contacts/bob", {"last_contact": 1}, "`last_contact`; did you mean `last_contact_at`?"),
    (
        "PUT",
        "/v1/users/alice/devices/phone",
        {"provider": "fcm", "token": "t", "user": "bob"},
        "`user`; use one of `provider`, `token`",
    ),
    ("PUT", "/v1/users/alice/push", {"timezone": "UTC"}, "`timezone`; did you mean `time_zone`?"),
    (
        "PUT",
        "/v1/users/alice/push",
        {"quiet_hours": {"begins": "22:00", "end": "07:00"}},
        "`quiet_hours.end`; did you mean `ends`?",
    ),
    ("PUT", "/v1/rooms/lobby", {"opne": True}, "`opne`; did you mean `open`?"),
    (
        "PUT",
        "/v1/rooms/lobby",
        {"title": "The lobby"},
        "`title`; use one of `open`, `bus`, `receipts`, `archived`, `slow_mode_s`, `by`, `reason`",
    ),
    ("PUT", "/v1/rooms/lobby/mutes/alice", {"untl": 1}, "`untl`; did you mean `until`?"),
    ("PUT", "/v1/rooms/lobby/bans/alice", {"untill": 1}, "`untill`; did you mean `until`?"),
    ("PUT", "/v1/mutes/alice", {"resaon": "r"}, "`resaon`; did you mean `reason`?"),
    ("PUT", "/v1/bans/alice", {"reasn": "r"}, "`reasn`; did you mean `reason`?"),
    ("PUT", "/v1/rooms/lobby/members/alice", {"Role": "admin"}, "`Role`; did you mean `role`?"),
    ("POST", "/v1/rooms/lobby/messages", {"user": "bot", "body": 1, "keys": "k"}, "`keys`; did you mean `key`?"),
    ("PATCH", "/v1/rooms/lobby/messages/1", {"body": 1, "reson": "r"}, "`reson`; did you mean `reason`?"),
    ("POST", "/v1/signals", {"room": "lobby", "kind": "x", "form": "bot"}, "`form`; did you mean `from`?"),
    ("POST", "/v1/notifications", NOTICE | {"ttl": 5}, "`ttl`; did you mean `ttl_s`?"),
    ("POST", "/v1/notifications", {"notificatons": [NOTICE]}, "`notificatons`; did you mean `notifications`?"),
    (
        "POST",
        "/v1/notifications",
        {"notifications": [NOTICE, NOTICE | {"pusch": False}]},
        "`notifications[1].pusch`; did you mean `push`?",
    ),
    ("POST", "/v1/events/alice", {"seq": 1, "commands": [], "clse": 1000}, "`clse`; did you mean `close`?"),
    ("POST", "/v1/tokens/revoke", {"user": "alice", "bevore": 1}, "`bevore`; did you mean `before`?"),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("PUT", "/v1/rooms/lobby", {"bus": "hints"}, "unknown value `hints`; did you mean `hint`? - at `bus`"),
        ("PUT", "/v1/rooms/lobby", {"bus": "x"}, "unknown value `x`; use one of `full`, `hint` - at `bus`"),
        ("PUT", "/v1/rooms/lobby/members/ann", {"role": "admn"}, "unknown value `admn`; did you mean `admin`?"),
        ("GET", "/v1/audit?action=user.mute", None, "unknown value `user.mute`; did you mean `user.muted`?"),
        (
            "POST",
            "/v1/notifications",
            {"notifications": [NOTICE, NOTICE | {"importance": "hihg"}]},
            "unknown value `hihg`; did you mean `high`? - at `notifications[1].importance`",
        ),
    ],
)
async def test_an_unknown_value_is_refused_with_the_nearest(
    method: str, path: str, body: dict[str, Any] | None, said: str
) -> None:
    async with backend() as (served, api):
        await served.lobby()
        assert is_problem(await api(method, path, body), 400, "bad_field").startswith(said)


@pytest.mark.parametrize(("method", "path", "body", "said"), UNKNOWN_FIELDS, ids=[case[3] for case in UNKNOWN_FIELDS])
async def test_an_unknown_field_is_refused_with_the_nearest_and_nothing_is_done(
    method: str, path: str, body: dict[str, Any], said: str
) -> None:
    async with backend() as (served, api):
        await served.lobby()
        alice = await served.client("alice")
        await alice.request(type="room.join", room="lobby")
        if path.startswith("/v1/events/"):  # the body is read only if there is such a stream
            stream = await EventStreamClient.connect(served.port)
            served._clients.append(stream)
            path = f"/v1/events/{stream.stream}"
        assert is_problem(await api(method, path, body), 400, "bad_field") == f"unknown field {said}"
        assert await alice.quiet() == []
        assert (await api.get("/v1/rooms/lobby"))["head"] == 0
        assert (await api.get("/v1/users/alice/inbox"))["head"] == 0


def test_every_request_with_a_body_refuses_an_unknown_field() -> None:
    bodies = {it.name for kind in KINDS for it in operations_of(kind) if it.body}
    tested = {f"{method} {path}" for method, path, _, _ in UNKNOWN_FIELDS}
    assert {re.sub(r"/(alice|bob|phone|lobby|1)\b", "/{}", name) for name in tested} == {
        re.sub(r"{\w+}", "{}", name) for name in bodies
    }


async def test_a_list_of_notifications_has_no_fields_of_one_beside_it() -> None:
    async with backend() as (_, api):
        body = {"notifications": [NOTICE], "user": "bob"}
        assert "`user` is beside the list" in is_problem(await api("POST", "/v1/notifications", body), 400, "bad_field")
        empty = await api("POST", "/v1/notifications", {"notifications": None})
        assert "`notifications`" in is_problem(empty, 400, "bad_field")
        assert (await api.get("/v1/users/alice/inbox"))["head"] == 0


UNKNOWN_QUERIES = {
    "/v1/rooms?limt=5": "`limt`; did you mean `limit`?",
    "/v1/rooms?limit=5&cursor=x": "`cursor`; use one of `after`, `limit`",
    "/v1/presence/online?LIMIT=5": "`LIMIT`; did you mean `limit`?",
    "/v1/rooms/lobby/members?role=admin": "`role`; use one of `after`, `limit`",
    "/v1/rooms/lobby/messages?befor=3": "`befor`; did you mean `before`?",
    "/v1/users/alice/inbox?filters=unread": "`filters`; did you mean `filter`?",
    "/v1/users/alice/sessions?node=x": "`node`; this request takes no query parameters",
    "/v1/rooms/lobby?open=true": "`open`; this request takes no query parameters",
    "/v1/nodes?": None,
    "/v1/stats?tenant=acme": "`tenant`; this request takes no query parameters",
}


@pytest.mark.parametrize(("path", "said"), UNKNOWN_QUERIES.items(), ids=UNKNOWN_QUERIES.keys())
async def test_an_unknown_query_parameter_is_refused_with_the_nearest(path: str, said: str | None) -> None:
    async with backend() as (served, api):
        await served.lobby()
        answer = await api("GET", path)
        if said is None:
            assert answer.status == 200
        else:
            assert is_problem(answer, 400, "bad_field") == f"unknown query parameter {said}"


async def test_a_query_parameter_is_refused_beside_a_body_too_and_does_nothing() -> None:
    async with backend() as (_, api):
        detail = is_problem(await api("PUT", "/v1/rooms/den?open=true", {}), 400, "bad_field")
        assert detail == "unknown query parameter `open`; this request takes no query parameters"
        assert (await api.get("/v1/rooms"))["rooms"] == []


async def test_a_query_parameter_that_is_given_twice_is_refused() -> None:
    async with backend() as (_, api):
        assert "`limit` twice" in is_problem(await api("GET", "/v1/rooms?limit=5&limit=6"), 400, "bad_field")


@pytest.mark.parametrize("body", [b'{"reason": "spam"}', b"[]", b"spam", b"{}{}", b"x" * 100_000])
async def test_a_body_is_refused_where_none_is_taken(body: bytes) -> None:
    async with backend() as (served, api):
        await served.lobby()
        alice = await served.client("alice")
        for method, path in (("DELETE", f"/v1/sessions/{alice.welcome['session']}"), ("GET", "/v1/rooms")):
            assert "takes no body" in is_problem(await api(method, path, body), 400, "bad_field")
        assert await alice.quiet() == []
        for nothing in (b"", b"{}", b" { }\n"):
            assert (await api("GET", "/v1/rooms", nothing)).status == 200


@on_each_pair
async def test_a_signal_to_a_room_that_does_not_exist_is_refused(pair: str, tmp_path: Path, postgres: str) -> None:
    async with serving_on(pair, tmp_path, postgres) as served:
        api = Backend(served)
        signal = {"room": "lobby", "kind": "wave"}
        assert "'lobby'" in is_problem(await api("POST", "/v1/signals", signal), 404, "no_such_room")
        await served.lobby()
        assert (await api("POST", "/v1/signals", signal)).status == 202
        alice = await served.joined("alice", "lobby")
        assert (await api("POST", "/v1/signals", signal)).status == 202
        assert (await alice.receive("signal"))["data"]["kind"] == "wave"


async def test_a_signal_is_sent_while_the_store_is_away(postgres: str) -> None:
    async with migrated_schema(postgres) as place:
        port = urlsplit(place).port
        assert port is not None
        with Proxy(port) as network:
            url = place.replace(f":{port}/", f":{network.port}/")
            async with serving(store={"url": url, "migrate": True}) as served:
                await served.lobby()
                network.cut()
                answer = await Backend(served)("POST", "/v1/signals", {"room": "lobby", "kind": "wave"})
                assert answer.status == 202
                network.heal()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/openapi.json"])
async def test_probes_and_scrapers_may_add_queries_of_their_own(path: str) -> None:
    async with serving() as served:
        assert (await ask(served.port, "GET", f"{path}?at=123")).status == 200
