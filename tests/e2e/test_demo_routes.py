"""Routes of a dev server for its demo."""

from __future__ import annotations

from pathlib import Path

from e2e.processes import Process, ask, running

JSON = {"Content_Type": "application/json"}


async def post(server: Process, path: str, body: object, **headers: str) -> int:
    return (await ask(server.port, "POST", path, body, **headers)).status


async def test_the_demo_can_notify_and_cut_and_a_cut_socket_is_forgiven(tmp_path: Path) -> None:
    async with running(tmp_path, "--dev", GREENDOT_PRESENCE_GRACE_S="20") as server:
        periods = (await ask(server.port, "GET", "/dev/periods")).json()
        assert (periods["grace_s"], periods["dead_after_s"]) == (20, 75)
        alice, bob = await server.client("alice"), await server.client("bob", device="phone")
        await alice.request(type="watch", users=["bob"])
        assert await post(server, "/dev/notify", {"user": "bob", "text": "hi", "sender": "Alice"}, **JSON) == 201
        assert (await bob.receive("notification.created"))["data"]["body"] == {"text": "hi", "from": "Alice"}
        session = (await server.ask("GET", "/v1/users/bob/sessions")).json()["sessions"][0]["session"]
        assert await post(server, "/dev/cut", {"session": session}, **JSON) == 204
        assert (await bob.closed()).code == 1006  # no close frame
        assert await post(server, "/dev/cut", {"session": session}, **JSON) == 404
        again = await server.client("bob", device="phone", resume={"session": session})
        assert await alice.quiet() == []  # within the grace: not visible to others
        for client in (alice, again):
            await client.end()


async def test_invalid_requests_of_the_demo_are_refused(tmp_path: Path) -> None:
    wrong = [
        ("/dev/notify", {"user": "bob"}, 400),
        ("/dev/notify", {"user": "b b", "text": "hi"}, 400),
        ("/dev/notify", {"user": "bob", "text": ""}, 400),
        ("/dev/notify", {"user": "bob", "text": "x" * 501}, 400),
        ("/dev/notify", b"{", 400),
        ("/dev/cut", {}, 400),
        ("/dev/cut", {"session": "unknown"}, 404),
    ]
    async with running(tmp_path, "--dev") as server:
        for path, body, expected in wrong:
            assert await post(server, path, body, **JSON) == expected, body


async def test_pages_of_other_sites_cannot_use_what_is_there_for_the_demo(tmp_path: Path) -> None:
    async with running(tmp_path, "--dev") as server:
        # Content types that a page may send to any site without a preflight request: forms.
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            body = {"user": "bob", "text": "hi"}
            assert await post(server, "/dev/notify", body, Content_Type=kind) == 415
            assert await post(server, "/dev/cut", {"session": "x"}, Content_Type=kind) == 415
        asked = await ask(server.port, "OPTIONS", "/dev/notify", Origin="https://evil.example")
        assert "access-control-allow-origin" not in asked.headers


async def test_a_server_without_dev_mode_offers_none_of_it(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1") as server:
        for path in ("/", "/dev/periods", "/playground", "/playground/app.js"):
            assert (await ask(server.port, "GET", path)).status == 404, path
        for path in ("/dev/notify", "/dev/cut"):
            assert await post(server, path, {"session": "x", "user": "bob", "text": "hi"}, **JSON) == 404
