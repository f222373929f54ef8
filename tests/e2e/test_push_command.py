"""`greendot push` and `greendot worker` on a command line."""

from __future__ import annotations

from pathlib import Path

from e2e.processes import greendot, running

DRY = {"GREENDOT_PUSH_DRY_RUN": "true"}


async def test_operators_see_what_became_of_a_push_and_try_one(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1", **DRY) as server:
        body = {"provider": "fcm", "token": "a-token-that-is-secret"}
        assert (await server.ask("PUT", "/v1/users/ann/devices/phone", body)).status == 201
        made = await server.ask("POST", "/v1/notifications", {"user": "ann", "kind": "ping", "body": {}})
        notification = made.json()["id"]
        out = ""
        while "dry run" not in out:
            out = (await greendot(tmp_path, "push", "explain", notification)).out
        assert "Done: offline. The user was offline." in out
        assert "phone   fcm       sent     1" in out
        listed = (await greendot(tmp_path, "push", "devices", "ann")).out
        assert "…secret" in listed
        assert "a-token" not in listed
        assert "Waiting: 0" in (await greendot(tmp_path, "push", "status", **DRY)).out
        assert "no dead letters" in (await greendot(tmp_path, "push", "dead")).out
        tried = await greendot(tmp_path, "push", "test", "--user", "ann", "--dry-run")
        assert (tried.code, "dry run" in tried.out) == (0, True)
        nobody = await greendot(tmp_path, "push", "test", "--user", "bob")
        assert (nobody.code, "no registered device" in nobody.err) == (2, True)
        missing = await greendot(tmp_path, "push", "test", "--user", "ann")
        assert (missing.code, "fcm is not configured" in missing.out) == (2, True)


async def test_a_worker_without_a_shared_engine_is_refused_with_the_option_to_set(tmp_path: Path) -> None:
    ended = await greendot(tmp_path, "worker", **DRY)
    assert ended.code == 2
    assert "--engine redis://HOST:PORT" in ended.err
