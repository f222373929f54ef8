"""HTTP API as an app backend uses it: authorization, responses, and the events that clients receive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from e2e.processes import Answer, ask, exchange
from greendot.protocol.decoding import MAX_DEPTH
from greendot.testing import Served, serving
from greendot.testing.server import API_KEY


class Backend:
    """App backend with the server's API key."""

    def __init__(self, served: Served) -> None:
        self.served = served

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        return await ask(self.served.port, method, path, body, **{"Authorization": f"Bearer {API_KEY}"} | headers)

    async def get(self, path: str) -> Any:
        answer = await self("GET", path)
        assert answer.status == 200, answer
        assert answer.headers["content-type"] == "application/json"
        return answer.json()


@asynccontextmanager
async def backend(**sections: dict[str, Any]) -> AsyncIterator[tuple[Served, Backend]]:
    async with serving(**sections) as served:
        yield served, Backend(served)


def is_problem(answer: Answer, status: int, code: str | None = None) -> str:
    """Check an RFC 9457 document and return its detail."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert {"type", "title", "status", "detail"} <= problem.keys() <= {"type", "title", "status", "detail", "code"}
    assert problem["type"] == "about:blank"
    assert problem["title"]
    assert problem["status"] == status
    assert problem.get("code") == code
    assert problem["detail"]
    return str(problem["detail"])


# --- authorization ---

GUARDED = [
    ("POST", "/v1/presence/query"),
    ("GET", "/v1/presence/online"),
    ("GET", "/v1/users/alice/presence"),
    ("GET", "/v1/users/alice/sessions"),
    ("PUT", "/v1/users/alice/status"),
    ("GET", "/v1/rooms"),
    ("PUT", "/v1/rooms/lobby"),
    ("GET", "/v1/rooms/lobby"),
    ("GET", "/v1/rooms/lobby/members"),
    ("PUT", "/v1/rooms/lobby/members/alice"),
    ("DELETE", "/v1/rooms/lobby/members/alice"),
    ("GET", "/v1/rooms/lobby/present"),
    ("GET", "/v1/rooms/lobby/typing"),
    ("GET", "/v1/rooms/lobby/messages"),
    ("POST", "/v1/rooms/lobby/messages"),
    ("POST", "/v1/signals"),
    ("POST", "/v1/notifications"),
    ("GET", "/v1/users/alice/inbox"),
    ("DELETE", "/v1/sessions/k3Fa-1"),
    ("POST", "/v1/tokens/revoke"),
    ("GET", "/v1/nodes"),
    ("GET", "/v1/stats"),
]

NO_KEYS = {
    "none": None,
    "empty": "",
    "another key": "Bearer another",
    "part of the key": f"Bearer {API_KEY[:-1]}",
    "no key behind the scheme": "Bearer ",
    "another scheme": f"Basic {API_KEY}",
    "no scheme": API_KEY,
    "not ASCII": "Bearer clé",
}


@pytest.mark.parametrize("authorization", NO_KEYS.values(), ids=NO_KEYS.keys())
async def test_no_route_opens_without_the_key(authorization: str | None) -> None:
    async with serving() as served:
        await served.lobby()
        headers = {} if authorization is None else {"Authorization": authorization}
        for method, path in GUARDED:
            answer = await ask(served.port, method, path, **headers)
            is_problem(answer, 401)
            assert answer.headers["www-authenticate"] == "bearer"


async def test_without_a_configured_key_nothing_opens_not_even_with_an_empty_one() -> None:
    async with serving(api={"key": ""}) as served:
        for authorization in ("Bearer ", "Bearer", "Bearer x"):
            is_problem(await ask(served.port, "GET", "/v1/rooms", Authorization=authorization), 401)


async def test_the_scheme_is_read_in_any_case() -> None:
    async with serving() as served:
        assert (await ask(served.port, "GET", "/v1/rooms", Authorization=f"bEARER {API_KEY}")).status == 200


async def test_whether_it_lives_is_ready_and_what_it_counts_needs_no_key() -> None:
    async with serving() as served:
        await served.client("alice")
        assert (await ask(served.port, "GET", "/livez")).status == 200
        ready = await ask(served.port, "GET", "/readyz")
        assert (ready.status, ready.json()["ready"]) == (200, True)
        metrics = await ask(served.port, "GET", "/metrics")
        assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert f'ws_connections{{node="{served.node.incarnation}"}} 1.0\n' in metrics.body.decode()


# --- bad requests ---


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/nothing", "/v1/rooms/a/b", "/v1/rooms/lobby/members/a/b", "/v1/rooms/"]
)
async def test_an_unknown_path_is_404(path: str) -> None:
    async with backend() as (_, api):
        is_problem(await api("GET", path), 404)


WRONG_METHODS = [
    ("GET", "/v1/presence/query", {"POST"}),
    ("POST", "/v1/presence/online", {"GET", "HEAD"}),
    ("POST", "/v1/rooms/lobby", {"GET", "HEAD", "PUT", "DELETE"}),
    ("PATCH", "/v1/rooms/lobby/messages", {"GET", "HEAD", "POST"}),
    ("POST", "/v1/rooms/lobby/members/alice", {"PUT", "DELETE"}),
    ("GET", "/v1/sessions/k3Fa-1", {"DELETE"}),
    ("DELETE", "/livez", {"GET", "HEAD"}),
]


@pytest.mark.parametrize(("method", "path", "allowed"), WRONG_METHODS)
async def test_a_wrong_method_is_refused_with_405_and_the_allowed_methods(
    method: str, path: str, allowed: set[str]
) -> None:
    async with backend() as (_, api):
        answer = await api(method, path)
        is_problem(answer, 405)
        assert {name.strip().upper() for name in answer.headers["allow"].split(",")} == allowed


BODIES = {
    "prose": (b"hello", "bad_frame"),
    "half": (b'{"users": [', "bad_frame"),
    "not UTF-8": (b'{"users": ["\xff"]}', "bad_frame"),
    "a bomb": (b"[" * 100_000, None),
    "an array": (b"[]", "bad_field"),
    "nothing": (b"", "bad_field"),
    "no users": (b"{}", "bad_field"),
    "users of the wrong type": (b'{"users": "alice"}', "bad_field"),
    "an empty list": (b'{"users": []}', "bad_field"),
    "one invalid id": (b'{"users": ["alice", "b b", "carol"]}', "bad_field"),
    "one id that ends in a line break": (b'{"users": ["alice\\n"]}', "bad_field"),
    "half a surrogate pair": (b'{"users": ["\\ud800"]}', None),
}


@pytest.mark.parametrize(("body", "code"), BODIES.values(), ids=BODIES.keys())
async def test_a_wrong_body_is_refused_with_400_and_the_cause(body: bytes, code: str | None) -> None:
    async with backend() as (_, api):
        answer = await api("POST", "/v1/presence/query", body)
        is_problem(answer, 400, code or answer.json()["code"])
        if code == "bad_field" and body:
            assert "users" in is_problem(answer, 400, code) or body == b"[]"


async def test_a_body_over_2_mib_is_413_and_one_of_2_mib_is_read() -> None:
    async with backend() as (_, api):
        frame = b'{"users": ["alice"]%b}'
        fits = frame % (b" " * (2 * 1024 * 1024 - len(frame) + 2))
        assert len(fits) == 2 * 1024 * 1024
        assert (await api("POST", "/v1/presence/query", fits)).status == 200
        is_problem(await api("POST", "/v1/presence/query", fits + b" "), 413)
        assert (await api("GET", "/v1/rooms")).status == 200


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "ten", "1.5", "", "٣", "9" * 30, "0" * 30 + "1", "9" * 5_000])
@pytest.mark.parametrize(
    "path", ["/v1/presence/online", "/v1/rooms", "/v1/rooms/lobby/members", "/v1/rooms/lobby/present"]
)
async def test_a_bad_limit_is_400(path: str, limit: str) -> None:
    async with backend() as (served, api):
        await served.lobby()
        quoted = "".join(
            char if char.isascii() else "%" + "%".join(f"{b:02X}" for b in char.encode()) for char in limit
        )
        assert "limit" in is_problem(await api("GET", f"{path}?limit={quoted}"), 400, "bad_field")


@pytest.mark.parametrize(
    "query",
    ["after=-1", "after=x", "before=1.5", f"after={2**63}", f"before={10**30}", "limit=301", "after=1&before=2"],
)
async def test_a_bad_bound_of_messages_is_400_and_the_store_goes_on(query: str) -> None:
    async with backend() as (served, api):
        await served.lobby()
        is_problem(await api("GET", f"/v1/rooms/lobby/messages?{query}"), 400, "bad_field")
        assert (await api("GET", "/v1/rooms/lobby/messages")).status == 200


@pytest.mark.parametrize("onwards", [True, False])
async def test_a_page_of_messages_is_limited_in_bytes_and_has_the_next_position(onwards: bool) -> None:
    async with backend() as (served, api):
        await served.lobby()
        for number in range(40):
            sent = {"user": "bot", "body": f"{number}".ljust(60_000)}
            assert (await api("POST", "/v1/rooms/lobby/messages", sent)).status == 201
        seen: list[int] = []
        bound, position = ("after", 0) if onwards else ("before", 41)
        pages = 0
        while position is not None:
            answer = await api("GET", f"/v1/rooms/lobby/messages?{bound}={position}&limit=300")
            assert len(answer.body) < 1.1 * 1024 * 1024
            page, position = answer.json()["messages"], answer.json()["next"]
            seqs = [message["seq"] for message in page]
            seen = [*seen, *seqs] if onwards else [*seqs, *seen]
            pages += 1
        assert seen == [*range(1, 41)]
        assert pages == 3
        assert await api.get("/v1/rooms/lobby/messages?after=40") == {"messages": [], "next": None}
        assert await api.get("/v1/rooms/lobby/messages?before=1") == {"messages": [], "next": None}


@pytest.mark.parametrize("bad", ["-a", "a%20b", "a%0A", "%00", "a" * 129, "%C3%A4", "%FF", "a*"])
async def test_an_invalid_id_in_a_path_is_400(bad: str) -> None:
    async with backend() as (_, api):
        for method, path in [
            ("GET", f"/v1/users/{bad}/presence"),
            ("GET", f"/v1/users/{bad}/sessions"),
            ("PUT", f"/v1/users/{bad}/status"),
            ("PUT", f"/v1/rooms/{bad}"),
            ("GET", f"/v1/rooms/{bad}"),
            ("GET", f"/v1/presence/online?after={bad}"),
            ("GET", f"/v1/rooms?after={bad}"),
            ("DELETE", f"/v1/sessions/{bad}"),
        ]:
            is_problem(await api(method, path), 400, "bad_field")


# --- presence ---


async def test_ten_thousand_users_are_answered_in_order_and_one_more_is_refused() -> None:
    async with backend() as (served, api):
        await served.client("user9999")
        users = [f"user{number}" for number in range(10_000)]
        answer = await api("POST", "/v1/presence/query", {"users": users})
        entries = answer.json()["presence"]
        assert [entry["user"] for entry in entries] == users
        assert [entry["user"] for entry in entries if entry["state"] != "offline"] == ["user9999"]
        detail = is_problem(await api("POST", "/v1/presence/query", {"users": [*users, "more"]}), 400, "bad_field")
        assert "users" in detail


async def test_who_is_online_is_paged_by_id() -> None:
    async with backend() as (served, api):
        for user in ("dora", "alice", "carol", "bob"):
            await served.client(user)
        await served.client("mallory", claims={"tenant": "other"})
        first = await api.get("/v1/presence/online?limit=3")
        assert first == {"users": ["alice", "bob", "carol"], "next": "carol", "count": 4}
        assert await api.get("/v1/presence/online?limit=3&after=carol") == {"users": ["dora"], "next": None, "count": 4}
        assert (await api.get("/v1/presence/online?after=zoe"))["users"] == []
        assert (await api.get("/v1/presence/online?after=~0000"))["users"] == ["alice", "bob", "carol", "dora"]
        assert (await api.get("/v1/presence/online?after=~ffff"))["users"] == []


async def test_a_user_is_shown_as_others_see_them() -> None:
    async with backend() as (served, api):
        alice = await served.client("alice", device="phone")
        entry = await api.get("/v1/users/alice/presence")
        assert (entry["state"], entry["name"], entry["devices"]) == ("online", "Alice", ["phone"])
        await alice.request(type="status.set", status="invisible")
        entry = await api.get("/v1/users/alice/presence")
        assert entry["state"] == "offline"
        assert "status" not in entry
        assert (await api.get("/v1/presence/online"))["users"] == []
        assert (await api.get("/v1/users/nobody/presence"))["state"] == "offline"


async def test_sessions_are_listed_while_they_count_and_as_lingering_while_they_linger() -> None:
    async with backend() as (served, api):
        alice = await served.client("alice", device="phone", client={"name": "web", "version": "1"})
        await served.advance(5)
        (session,) = (await api.get("/v1/users/alice/sessions"))["sessions"]
        assert session["session"] == alice.welcome["session"]
        assert (session["user"], session["device"], session["state"]) == ("alice", "phone", "online")
        assert session["client"] == {"name": "web", "version": "1"}
        assert session["node"] == served.node.incarnation
        assert served.clock.now_ms() - session["last_heard"] == 5_000
        await alice.reset()
        await served.until_gone()
        assert [s["state"] for s in (await api.get("/v1/users/alice/sessions"))["sessions"]] == ["lingering"]
        await served.advance(60)
        assert (await api.get("/v1/users/alice/sessions"))["sessions"] == []


async def test_only_a_session_without_a_connection_has_an_end() -> None:
    async with backend() as (served, api):
        alice = await served.client("alice")
        await alice.reset()
        await served.settle()
        (session,) = (await api.get("/v1/users/alice/sessions"))["sessions"]
        assert (session["state"], 0 < session["ends_in_ms"] <= 30_000) == ("lingering", True)
        again = await served.client("alice", resume={"session": alice.welcome["session"]})
        assert again.welcome["resumed"]
        (session,) = (await api.get("/v1/users/alice/sessions"))["sessions"]
        assert (session["state"], session["ends_in_ms"]) == ("online", None)


async def test_the_answer_to_a_status_has_its_text_also_for_a_user_who_is_offline() -> None:
    async with backend() as (_, api):
        answer = await api("PUT", "/v1/users/alice/status", {"status": "busy", "text": "in a call"})
        shown = answer.json()["presence"]
        assert (shown["state"], shown["status"], shown["status_text"]) == ("offline", "busy", "in a call")


async def test_a_status_set_by_the_app_is_seen_by_watchers_and_ends_when_it_should() -> None:
    async with backend() as (served, api):
        await served.client("alice")
        watcher = await served.client("watcher")
        await watcher.request(type="watch", users=["alice"])
        until = served.clock.now_ms() + 60_000
        body = {"status": "busy", "until": until, "text": "in a call"}
        answer = await api("PUT", "/v1/users/alice/status", body)
        assert answer.status == 200
        assert answer.json()["presence"]["status"] == "busy"
        (frame,) = await watcher.quiet()
        assert (frame["data"]["state"], frame["data"]["status_text"]) == ("busy", "in a call")
        (frames,) = await served.advance(59.999, [watcher])
        assert frames == []
        (frames,) = await served.advance(0.001, [watcher])
        assert [frame["data"]["state"] for frame in frames] == ["online"]


@pytest.mark.parametrize(
    "body", [{"status": "away"}, {"until": 1}, {"until": "soon"}, {"until": 2**63}, {"text": "x" * 201}], ids=str
)
async def test_a_wrong_status_is_400_and_changes_nothing(body: dict[str, Any]) -> None:
    async with backend() as (served, api):
        await served.client("alice")
        is_problem(await api("PUT", "/v1/users/alice/status", {"status": "busy"} | body), 400, "bad_field")
        assert (await api.get("/v1/users/alice/presence"))["state"] == "online"


# --- rooms ---


async def test_a_room_is_made_changed_shown_and_listed() -> None:
    async with backend() as (_, api):
        is_problem(await api("GET", "/v1/rooms/club"), 404, "no_such_room")
        for body, shown in ((None, False), ({"open": True}, True), ({"open": False}, False)):
            answer = await api("PUT", "/v1/rooms/club", body)
            expected = {"room": "club", "open": shown, "head": 0, "bus": "full", "receipts": False, "archived": False}
            expected["slow_mode_s"] = 0
            assert (answer.status, answer.json()) == (200, expected)
            assert await api.get("/v1/rooms/club") == answer.json()
        for room in ("bar", "attic"):
            await api("PUT", f"/v1/rooms/{room}")
        assert [room["room"] for room in (await api.get("/v1/rooms"))["rooms"]] == ["attic", "bar", "club"]
        assert [room["room"] for room in (await api.get("/v1/rooms?after=attic&limit=1"))["rooms"]] == ["bar"]
        is_problem(await api("PUT", "/v1/rooms/club", {"open": "yes"}), 400, "bad_field")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/members"),
        ("PUT", "/members/alice"),
        ("DELETE", "/members/alice"),
        ("GET", "/present"),
        ("GET", "/typing"),
        ("GET", "/messages"),
        ("POST", "/messages"),
    ],
)
async def test_what_is_asked_of_a_room_that_does_not_exist_is_404(method: str, path: str) -> None:
    async with backend() as (_, api):
        body = {"user": "a", "body": 1} if method == "POST" else None
        assert "nowhere" in is_problem(await api(method, f"/v1/rooms/nowhere{path}", body), 404, "no_such_room")


async def test_a_member_may_join_and_a_removed_member_is_notified_and_receives_nothing_more() -> None:
    async with backend() as (served, api):
        await api("PUT", "/v1/rooms/club")
        alice, phone = await served.client("alice"), await served.client("alice", device="phone")
        alice.send(type="room.join", room="club", id=1)
        assert (await alice.receive("error"))["code"] == "not_a_member"
        for user in ("alice", "bob", "alice"):
            assert (await api("PUT", f"/v1/rooms/club/members/{user}")).status == 200
        roles = {"alice": "member", "bob": "member"}
        assert await api.get("/v1/rooms/club/members") == {"members": ["alice", "bob"], "roles": roles, "next": None}
        first = await api.get("/v1/rooms/club/members?limit=1")
        assert first == {"members": ["alice"], "roles": {"alice": "member"}, "next": "alice"}
        assert (await api.get("/v1/rooms/club/members?after=alice"))["members"] == ["bob"]
        bob = await served.joined("bob", "club")
        for device in (alice, phone):
            await device.request(type="room.join", room="club")
        assert (await api("DELETE", "/v1/rooms/club/members/alice")).status == 204
        bob.send(type="typing.start", room="club")
        bob.send(type="signal.send", room="club", kind="wave")
        await bob.request(type="room.send", room="club", body="are they gone?")
        for device in (alice, phone):
            (frame,) = await device.quiet()
            assert frame["type"] == "room.changed"
            assert (frame["data"]["room"], frame["data"]["removed"]) == ("club", True)
            device.send(type="room.send", room="club", body="let me in", id=2)
            assert (await device.receive("error"))["code"] == "not_a_member"
        assert (await api("DELETE", "/v1/rooms/club/members/alice")).status == 204
        assert [f["type"] for f in await bob.quiet()] == ["room.message"]


async def test_who_is_in_a_room_now_is_listed_once_per_user_and_paged() -> None:
    async with backend() as (served, api):
        await api("PUT", "/v1/rooms/lobby", {"open": True})
        assert await api.get("/v1/rooms/lobby/present") == {"users": [], "count": 0, "profiles": {}}
        for user in ("bob", "alice", "alice"):
            await served.joined(user)
        assert await api.get("/v1/rooms/lobby/present") == {
            "users": ["alice", "bob"],
            "count": 2,
            "profiles": {"alice": {"name": "Alice"}, "bob": {"name": "Bob"}},
        }
        assert await api.get("/v1/rooms/lobby/present?limit=1&after=alice") == {
            "users": ["bob"],
            "count": 2,
            "profiles": {"bob": {"name": "Bob"}},
        }


async def test_who_is_typing_is_listed_until_they_stop() -> None:
    async with backend() as (served, api):
        await api("PUT", "/v1/rooms/lobby", {"open": True})
        alice = await served.joined("alice")
        await alice.request(type="typing.start", room="lobby")
        await served.advance(1)
        assert (await api.get("/v1/rooms/lobby/typing"))["typing"] == [
            {"user": "alice", "name": "Alice", "expires_in_ms": 4_000}
        ]
        await served.advance(4)
        assert (await api.get("/v1/rooms/lobby/typing"))["typing"] == []


# --- messages and notifications ---


async def test_a_message_of_the_app_is_numbered_and_delivered_like_any_other() -> None:
    async with backend() as (served, api):
        await api("PUT", "/v1/rooms/lobby", {"open": True})
        alice = await served.joined("alice")
        await alice.request(type="typing.start", room="lobby")
        body = {"text": "hi", "n": [1.50, None]}
        answer = await api("POST", "/v1/rooms/lobby/messages", {"user": "bot", "name": "Bot", "body": body})
        assert (answer.status, answer.json()["seq"]) == (201, 1)
        (frame,) = await alice.quiet()
        assert frame["type"] == "room.message"
        assert {name: frame["data"][name] for name in ("seq", "id", "user", "name", "body")} == {
            "seq": 1,
            "id": answer.json()["id"],
            "user": "bot",
            "name": "Bot",
            "body": body,
        }
        assert (await api.get("/v1/rooms/lobby"))["head"] == 1
        assert (await api.get("/v1/rooms/lobby/messages"))["messages"] == [frame["data"]]


async def test_messages_are_paged_in_both_directions() -> None:
    async with backend() as (_, api):
        await api("PUT", "/v1/rooms/lobby", {"open": True})
        for number in range(1, 8):
            await api("POST", "/v1/rooms/lobby/messages", {"user": "bot", "body": number})

        async def page(query: str) -> list[int]:
            return [message["seq"] for message in (await api.get(f"/v1/rooms/lobby/messages{query}"))["messages"]]

        assert await page("") == [1, 2, 3, 4, 5, 6, 7]
        assert await page("?limit=3") == [5, 6, 7]
        assert await page("?limit=3&before=5") == [2, 3, 4]
        assert await page("?limit=3&after=0") == [1, 2, 3]
        assert await page("?limit=3&after=3") == [4, 5, 6]
        assert await page("?after=7") == await page("?before=1") == await page("?before=0") == []


@pytest.mark.parametrize("by_header", [False, True], ids=["key in the body", "Idempotency-Key"])
async def test_a_message_sent_twice_with_one_key_is_written_and_delivered_once(by_header: bool) -> None:
    async with backend() as (served, api):
        await api("PUT", "/v1/rooms/lobby", {"open": True})
        alice = await served.joined("alice")

        async def send(user: str, key: str) -> Any:
            headers = {"Idempotency-Key": key} if by_header else {}
            body = {"user": user, "body": 1} | ({} if by_header else {"key": key})
            answer = await api("POST", "/v1/rooms/lobby/messages", body, **headers)
            assert answer.status == 201
            return answer.json()

        first = await send("bot", "k1")
        again = await asyncio.gather(*[send("bot", "k1") for _ in range(10)])
        assert again == [first] * 10
        assert [(await send(*other))["seq"] for other in (("bot", "k2"), ("other", "k1"))] == [2, 3]
        assert [frame["data"]["seq"] for frame in await alice.quiet()] == [1, 2, 3]


@pytest.mark.parametrize(
    "body",
    [{}, {"user": "bot"}, {"body": 1}, {"user": "b b", "body": 1}, {"user": "bot", "body": 1, "key": "k k"}],
    ids=str,
)
async def test_a_wrong_message_is_400_and_not_written(body: dict[str, Any]) -> None:
    async with backend() as (_, api):
        await api("PUT", "/v1/rooms/lobby", {"open": True})
        is_problem(await api("POST", "/v1/rooms/lobby/messages", body), 400, "bad_field")
        assert (await api.get("/v1/rooms/lobby"))["head"] == 0


@pytest.mark.parametrize("key", ["k k", "-k", "k" * 129, "é"])
async def test_an_invalid_idempotency_key_is_400(key: str) -> None:
    async with backend() as (_, api):
        await api("PUT", "/v1/rooms/lobby", {"open": True})
        answer = await api("POST", "/v1/rooms/lobby/messages", {"user": "bot", "body": 1}, Idempotency_Key=key)
        is_problem(answer, 400, "bad_field")
        assert (await api.get("/v1/rooms/lobby"))["head"] == 0


async def test_a_signal_of_the_app_reaches_a_room_or_all_devices_of_a_user() -> None:
    async with backend() as (served, api):
        await api("PUT", "/v1/rooms/lobby", {"open": True})
        alice, phone, bob = await served.joined("alice"), await served.client("alice"), await served.joined("bob")
        signal = {"kind": "alarm", "body": {"level": 2}, "key": "level"}
        assert (await api("POST", "/v1/signals", {"room": "lobby"} | signal)).status == 202
        for client in (alice, bob):
            (frame,) = await client.quiet()
            assert frame["data"] == {"room": "lobby", "from": "system", "name": None} | signal
        assert await phone.quiet() == []
        body = {"user": "alice", "kind": "alarm", "from": "billing", "name": "Billing"}
        assert (await api("POST", "/v1/signals", body)).status == 202
        for client in (alice, phone):
            (frame,) = await client.quiet()
            assert frame["data"] == {"from": "billing", "name": "Billing", "kind": "alarm"}
        assert await bob.quiet() == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "alarm"},
        {"kind": "alarm", "room": "lobby", "user": "alice"},
        {"room": "lobby"},
        {"kind": "a b", "room": "lobby"},
        {"kind": "alarm", "room": "lobby", "key": "\n"},
        {"kind": "alarm", "user": "-"},
        {"kind": "alarm", "user": "alice", "from": ""},
    ],
    ids=str,
)
async def test_a_wrong_signal_is_refused_with_400_and_reaches_no_client(body: dict[str, Any]) -> None:
    async with backend() as (served, api):
        await api("PUT", "/v1/rooms/lobby", {"open": True})
        alice = await served.joined("alice")
        is_problem(await api("POST", "/v1/signals", body), 400, "bad_field")
        assert await alice.quiet() == []


# --- operators ---


async def test_a_session_ended_by_the_operator_is_closed_4503_and_offline_at_once() -> None:
    async with backend() as (served, api):
        watcher, alice = await served.client("watcher"), await served.client("alice")
        phone = await served.client("alice", device="phone")
        await watcher.request(type="watch", users=["alice"])
        for client in (alice, phone):
            path = f"/v1/sessions/{client.welcome['session']}"
            assert (await api("DELETE", path)).status == 204
            assert (await client.closed()).code == 4503
            await served.settle()
            is_problem(await api("DELETE", path), 404)
        assert [frame["data"]["state"] for frame in await watcher.quiet()] == ["offline"]
        is_problem(await api("DELETE", "/v1/sessions/k3Fa-1"), 404)


async def test_a_session_of_another_tenant_cannot_be_ended_or_seen() -> None:
    async with backend() as (served, api):
        other = await served.client("alice", claims={"tenant": "other"})
        is_problem(await api("DELETE", f"/v1/sessions/{other.welcome['session']}"), 404)
        assert (await api.get("/v1/users/alice/sessions"))["sessions"] == []
        assert (await api.get("/v1/users/alice/presence"))["state"] == "offline"
        assert await other.quiet() == []


async def test_operators_see_the_node_and_its_counts() -> None:
    async with backend() as (served, api):
        await served.client("alice")
        node = served.node.incarnation
        listed = {"node": node, "state": "live", "renewed_at": served.clock.now_ms(), "ends_at": None}
        listed["level"] = "normal"
        assert await api.get("/v1/nodes") == {"nodes": [listed], "asked": node}
        stats = await api.get("/v1/stats")
        assert (stats["connections"], stats["sessions"], stats["users"]) == (1, 1, 1)


@pytest.mark.parametrize("path", ["/v1/rooms/lobby/messages", "/v1/signals"])
async def test_a_body_that_is_not_utf8_too_large_or_too_deep_reaches_no_client(path: str) -> None:
    async with serving() as served:
        await served.lobby()
        bob = await served.client("bob")
        await bob.request(type="room.join", room="lobby")
        head = b'{"user":"x","body":' if "messages" in path else b'{"room":"lobby","kind":"k","body":'
        deep = b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1) + b"}"
        for body, status in ((b'"\xff\xfe"}', 400), (b'"' + b"x" * 70_000 + b'"}', 413), (deep, 400), (b"1e309}", 400)):
            data = head + body
            request = (
                f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {API_KEY}\r\nConnection: close\r\n"
                f"Content-Length: {len(data)}\r\n\r\n"
            ).encode() + data
            assert (await exchange(served.port, request)).status == status
        assert await bob.quiet() == []
