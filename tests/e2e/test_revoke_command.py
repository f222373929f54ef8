"""`greendot revoke` with a running server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from e2e.processes import API_KEY, greendot, running


async def test_a_user_is_revoked_by_the_command_line_which_prints_the_number_of_closed_sockets(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1") as server:
        alice, bob = await server.client("alice"), await server.client("bob")
        url = ("--url", f"http://127.0.0.1:{server.port}")
        await asyncio.sleep(1.1)  # the issue time of tokens has whole seconds
        ended = await greendot(tmp_path, "revoke", "--user", "alice", *url, GREENDOT_API_KEY=API_KEY)
        assert (ended.code, ended.out) == (0, "Revoked user alice. Sockets closed: 1.\n"), ended.err
        assert (await alice.closed()).code == 4501
        session = bob.welcome["session"]
        ended = await greendot(tmp_path, "revoke", "--session", session, "--json", *url, GREENDOT_API_KEY=API_KEY)
        assert '"closed":1' in ended.out
        assert (await bob.closed()).code == 4501
        refused = await greendot(tmp_path, "revoke", "--user", "x", *url, GREENDOT_API_KEY="another")
        assert refused.code == 2
        assert "unknown API key" in refused.err
        await alice.end()
        await bob.end()
