"""`greendot revoke`: refusals, and writes to the store. tests/e2e/test_revoke_command.py covers calls through a
server."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.calls import complaint
from cli.stores import both_stores, opened, said
from greendot.clock import SystemClock
from redis_servers import free_port

MONTH_MS, HOUR_MS = 30 * 86_400_000, 3_600_000


@both_stores
async def test_with_a_store_it_is_written_past_the_servers(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        now = SystemClock().now_ms()
        told = await said("revoke", "--user", "ann", "--ago", "1h", "--store", url)
        assert told == "Revoked user ann. Servers close the sockets within 15 s.\n"
        await said("revoke", "--jti", "a b", "--user", "ann", "--store", url, "--tenant", "acme")
        await said("revoke", "--session", "s-1", "--store", url, "--json")
        user, token, session = [revocation for _, revocation in await store.revocations(0, 9)]
        assert user.name == ("default", "user", "ann")
        assert abs(user.before - (now - HOUR_MS)) < 60_000
        assert user.expires_at == user.before + MONTH_MS
        assert (token.name, token.before) == (("acme", "jti", "a b"), 0)
        assert (session.name, session.before) == (("default", "session", "s-1"), 0)
        assert abs(session.expires_at - (now + MONTH_MS)) < 60_000


async def test_all_tokens_of_a_tenant_or_of_all_tenants_are_revoked_past_the_servers(
    tmp_path: Path, postgres: str
) -> None:
    async with opened("sqlite", tmp_path, postgres) as (url, store):
        now = SystemClock().now_ms()
        told = await said("revoke", "--all", "--tenant", "acme", "--store", url)
        assert told.startswith("Revoked all tokens of tenant acme. ")
        assert (await said("revoke", "--all-tenants", "--store", url)).startswith("Revoked all tokens of all tenants. ")
        one, every = [revocation for _, revocation in await store.revocations(0, 9)]
        assert (one.name, every.name) == (("acme", "tenant", "acme"), ("*", "tenant", "*"))
        assert now <= one.before <= every.before
        assert every.expires_at == every.before + MONTH_MS


def test_without_a_server_the_command_names_the_remedy() -> None:
    port = free_port()
    told = complaint("revoke", "--user", "ann", GREENDOT_API_KEY="key", GREENDOT_SERVER_PORT=str(port))
    assert told.startswith(f"no server answers at http://127.0.0.1:{port}: Connection refused. Start one")
    assert "GREENDOT_API_KEY" in complaint("revoke", "--user", "ann")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "Give one of --user, --jti, --session and --all"),
        (["--all", "--user", "u"], "exclude --user"),
        (["--all-tenants", "--jti", "j", "--store", "sqlite:///x"], "exclude --user"),
        (["--all-tenants"], "--all-tenants needs --store"),
        (["--all-tenants", "--store", "sqlite:///x", "--tenant", "t"], "excludes --tenant"),
        (["--jti", "j", "--session", "s"], "Give one of"),
        (["--session", "s", "--user", "u"], "Give one of"),
        (["--jti", ""], "1 to 200"),
        (["--user", "a b"], "user 'a b'"),
        (["--session", "a/b"], "session 'a/b'"),
        (["--jti", "j", "--ago", "1h"], "--ago needs --user"),
        (["--user", "u", "--ago", "soon"], "soon"),
        (["--user", "u", "--tenant", "t"], "--tenant needs --store"),
        (["--user", "u", "--store", "sqlite:///x", "--url", "http://x"], "either --url"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str], word: str) -> None:
    assert word in complaint("revoke", *arguments)
