"""`greendot notify` with a real server: devices receive the notification at once."""

from __future__ import annotations

import re
from pathlib import Path

from e2e.processes import API_KEY, greendot, running


async def test_the_devices_of_the_user_receive_the_notification_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as server, await server.client("alice") as alice:
        url = ("--url", f"http://127.0.0.1:{server.port}/")
        notify = ("notify", "alice", "--kind", "order.shipped", "--body", '{"order": 18}', "--key", "k1", *url)
        ended = await greendot(tmp_path, *notify)
        assert (ended.code, ended.err) == (0, "")
        assert re.fullmatch(r"Notified alice: number 1, id 1-\w+\.\n", ended.out)
        heard = (await alice.receive("notification.created"))["data"]
        assert (heard["kind"], heard["body"], heard["seq"]) == ("order.shipped", {"order": 18}, 1)
        again = await greendot(tmp_path, *notify)
        assert again.out.startswith("alice already has a notification with this key: number 1, id 1-")
        while b'"live_at":null' in (told := (await server.ask("GET", "/v1/users/alice/inbox")).body):
            pass  # the receipt is written a little later
        mine = await greendot(tmp_path, "inbox", "alice", "--json")
        assert mine.out.encode() == told + b"\n"

        refused = await greendot(tmp_path, *notify, GREENDOT_API_KEY="another")
        assert refused.code == 2
        assert "refused the request: unknown API key;" in refused.err


async def test_a_dev_server_is_found_by_its_folder(tmp_path: Path) -> None:
    nothing = {"GREENDOT_AUTH_SECRET": "", "GREENDOT_API_KEY": ""}
    async with running(tmp_path, "--dev", **nothing) as server:
        port = {"GREENDOT_SERVER_PORT": str(server.port)}
        ended = await greendot(tmp_path, "notify", "alice", "--kind", "hello", **nothing, **port)
        assert (ended.code, ended.err) == (0, "")
        assert API_KEY not in ended.out
        assert (await greendot(tmp_path, "inbox", "alice", **nothing)).out.startswith("alice has 1 unread, 1 unseen")
