"""`greendot notify`: refusals, and writes to the store. tests/e2e/test_notify.py covers calls through a server."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from cli.calls import complaint
from cli.stores import both_stores, opened, said
from redis_servers import free_port

AGAIN = "alice already has a notification with this key"


@both_stores
async def test_with_a_store_it_is_written_past_the_servers(kind: str, tmp_path: Path, postgres: str) -> None:
    async with opened(kind, tmp_path, postgres) as (url, store):
        notify = ("notify", "alice", "--kind", "order", "--body", '{"n": 1}', "--key", "k1", "--store", url)
        first = await said(*notify)
        assert re.fullmatch(r"Notified alice: number 1, id 1-\w+\.\nConnected devices receive it .*\n", first)
        assert await said(*notify) == first.splitlines()[0].replace("Notified alice", AGAIN) + "\n"
        assert (await said(*notify, "--tenant", "acme", "--json")).startswith('{"id":"1-')
        (entry,) = await store.notifications("default", "alice", limit=9)
        assert (entry.kind, entry.body) == ("order", b'{"n": 1}')
        assert (await store.inbox("acme", "alice")).unread == 1


async def test_what_is_promised_of_its_kind_holds_past_the_servers_too(tmp_path: Path, postgres: str) -> None:
    file = tmp_path / "greendot.toml"
    file.write_text("[kinds.alarm]\npromise = 'acknowledged'\n[kinds.cursor]\npromise = 'ephemeral'\n")
    async with opened("sqlite", tmp_path, postgres) as (url, store):
        past = ("--store", url, "--config", str(file))
        await said("notify", "alice", "--kind", "alarm", *past)
        (entry,) = await store.notifications("default", "alice", limit=9)
        assert entry.ack
        refused = await asyncio.to_thread(complaint, "notify", "alice", "--kind", "cursor", *past)
        assert refused == "kind cursor has the promise ephemeral: its notifications are not stored. Leave out --store."


def test_without_a_server_the_command_names_the_remedy(tmp_path: Path) -> None:
    port = free_port()
    told = complaint("notify", "alice", "--kind", "k", GREENDOT_API_KEY="key", GREENDOT_SERVER_PORT=str(port))
    assert told.startswith(f"no server answers at http://127.0.0.1:{port}: Connection refused. Start one")
    assert "GREENDOT_API_KEY" in complaint("notify", "alice", "--kind", "k")
    (tmp_path / "api-key").write_text("a dev server's\n")
    told = complaint(
        "notify", "alice", "--kind", "k", "--url", f"http://127.0.0.1:{port}", GREENDOT_SERVER_DATA_DIR=str(tmp_path)
    )
    assert "no server answers" in told


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["alice"], "--kind"),
        (["a b", "--kind", "k"], "user 'a b'"),
        (["alice", "--kind", "two words"], "kind 'two words'"),
        (["alice", "--kind", "k", "--key", "-"], "key '-'"),
        (["alice", "--kind", "k", "--body", "hello"], "--body '\"hello\"'"),
        (["alice", "--kind", "k", "--body", '"' + "x" * 70_000 + '"'], "at most 65536 bytes"),
        (["alice", "--kind", "k", "--tenant", "acme"], "--tenant needs --store"),
        (["alice", "--kind", "k", "--url", "http://h", "--store", "sqlite:///x"], "either --url"),
        (["alice", "--kind", "k", "--url", "ftp://h"], "http://"),
    ],
)
def test_what_cannot_be_meant_is_named(arguments: list[str], word: str) -> None:
    assert word in complaint("notify", *arguments, GREENDOT_API_KEY="key")
