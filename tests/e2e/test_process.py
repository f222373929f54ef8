"""`greendot` as a program: start, start errors, stop, and data after a crash."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.processes import API_KEY, SECRET, Ended, ask, greendot, running, serves_a_fresh_client
from greendot import __version__
from greendot.testing import Closed, WireClient
from greendot.testing.wire import CLOSE, TEXT
from waited import Lap

DEV = {"GREENDOT_AUTH_SECRET": "", "GREENDOT_API_KEY": ""}  # neither is set: a dev server creates its own


def complains(ended: Ended, *words: str) -> None:
    """Check that the command ended with an error that has these words."""
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err
    assert ended.out == ""
    for word in words:
        assert word in ended.err, ended.err


# --- starting ---


async def test_a_dev_server_is_ready_when_it_prints_its_address(tmp_path: Path) -> None:
    async with running(tmp_path, "--dev", **DEV) as server:
        assert f"http://127.0.0.1:{server.port}/" in server.announced
        assert (await server.ask("GET", "/livez")).status == 200
        ready = await server.ask("GET", "/readyz")
        assert (ready.status, ready.json()["ready"]) == (200, True)
        assert (await server.ask("GET", "/")).headers["content-type"] == "text/html; charset=utf-8"
        token = (await server.ask("GET", "/dev/token?user=alice")).json()["token"]
        async with await WireClient.connect(server.port) as alice:
            await alice.hello(token)
            assert (await alice.request(type="room.join", room="lobby"))["present"] == 1


async def test_a_server_without_dev_mode_gives_no_tokens_and_has_no_lobby(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1") as server:
        assert (await server.ask("GET", "/dev/token?user=alice")).status == 404
        assert (await server.ask("GET", "/")).status == 404
        assert (await server.ask("GET", "/v1/rooms")).json() == {"rooms": []}


async def test_the_dev_secret_and_key_are_kept_for_their_owner_and_the_key_is_shown_once(tmp_path: Path) -> None:
    async with running(tmp_path, "--dev", **DEV) as server:
        key = (tmp_path / "api-key").read_text().strip()
        secret = (tmp_path / "secret").read_text().strip()
        for name in ("secret", "api-key"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        assert (await server.ask("GET", "/v1/rooms", key=key)).status == 200
        server.signal(signal.SIGTERM)
        said = (await server.ended()).out
        assert said.count(key) == 1
        assert secret not in said
    async with running(tmp_path, "--dev", **DEV) as server:
        assert (await server.ask("GET", "/v1/rooms", key=key)).status == 200
        server.signal(signal.SIGTERM)
        ended = await server.ended()
        assert key not in ended.out + ended.err
        assert str(tmp_path / "api-key") in ended.out


async def test_a_dev_server_listens_on_loopback_only_whatever_the_environment_sets(tmp_path: Path) -> None:
    async with running(tmp_path, "--dev", GREENDOT_SERVER_HOST="0.0.0.0") as server:
        # A server on all addresses would accept this connection.
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", server.port)
        await serves_a_fresh_client(server.port, server.token("alice"))


async def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "greendot.toml"
    config.write_text(
        "[server]\nhost = '127.0.0.1'\nport = 1\n[presence]\nheartbeat_s = 11\ndead_after_s = 44\n"
        "[limits]\nwatches = 5\nrooms = 6\n[api]\nkey = 'from the file'\n"
    )
    async with running(
        tmp_path, "--config", str(config), GREENDOT_SERVER_PORT="2", GREENDOT_LIMITS_WATCHES="7", GREENDOT_API_KEY=""
    ) as server:
        alice = await server.client("alice")
        assert server.port not in (1, 2, 8000)
        assert alice.welcome["limits"]["watches"] == 7
        assert alice.welcome["limits"]["rooms"] == 6
        assert alice.welcome["heartbeat_s"] == 11
        assert alice.welcome["limits"]["commands_per_s"] == 50
        assert (await server.ask("GET", "/v1/rooms", key="from the file")).status == 200
        assert (await server.ask("GET", "/v1/rooms", key=API_KEY)).status == 401
        await alice.end()


# --- not starting ---


@contextmanager
def occupied_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with occupied_port() as port:
        ended = await greendot(tmp_path, "serve", "--host", "127.0.0.1", "--port", str(port))
        complains(ended, f"port {port} is in use", "--port")


FILES = {
    "not TOML": ("[presence\ngrace_s = 5", ["greendot.toml is not valid TOML", "line 1"]),
    "a setting that does not exist": (
        "[presence]\nheartbeats_s = 5",
        ["greendot.toml", "[presence]", "'heartbeats_s'", "Did you mean 'heartbeat_s'?"],
    ),
    "a relation that does not hold": (
        "[presence]\nheartbeat_s = 30\ndead_after_s = 59",
        ["presence.dead_after_s (59)", "twice presence.heartbeat_s (30)", "Raise dead_after_s or lower heartbeat_s"],
    ),
}


@pytest.mark.parametrize(("text", "words"), FILES.values(), ids=FILES.keys())
async def test_a_file_that_is_wrong_is_explained(tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "greendot.toml").write_text(text)
    ended = await greendot(tmp_path, "serve", "--port", "0", "--config", "greendot.toml")
    complains(ended, *words)


CALLS: dict[str, tuple[list[str], dict[str, str], list[str]]] = {
    "no secret": (["serve", "--port", "0"], {"GREENDOT_AUTH_SECRET": ""}, ["GREENDOT_AUTH_SECRET", "serve --dev"]),
    "a file that is not there": (["serve", "--config", "no.toml"], {}, ["no.toml", "No such file"]),
    "two workers": (
        ["serve", "--port", "0", "--workers", "2", "--engine", "memory"],
        {},
        ["2 workers", "memory", "Leave out --engine"],
    ),
    "dev mode on all addresses with a weak key": (
        ["serve", "--dev", "--host", "0.0.0.0"],
        {"GREENDOT_API_KEY": "weak"},
        ["api.key", "could be guessed"],
    ),
    "a host that is not ours": (["serve", "--host", "192.0.2.1", "--port", "0"], {}, ["192.0.2.1"]),
    "a host that is no name": (["serve", "--host", "no such host", "--port", "0"], {}, ["no such host"]),
    "a host that is far too long": (["serve", "--host", "x" * 300, "--port", "0"], {}, ["xxx"]),
    "a port that is no number": (["serve", "--port", "http"], {}, ["--port", "http"]),
    "a port that cannot be": (["serve", "--port", "65536"], {}, ["server.port", "65535"]),
    "a data directory that cannot be": (
        ["serve", "--port", "0"],
        {"GREENDOT_SERVER_DATA_DIR": "/dev/null/data"},
        ["/dev/null/data"],
    ),
    "a dev directory that cannot be": (
        ["serve", "--dev", "--port", "0"],
        DEV | {"GREENDOT_SERVER_DATA_DIR": "/dev/null/data"},
        ["/dev/null/data"],
    ),
    "an unknown command": (["sever"], {}, ["sever"]),
    "an unknown flag": (["serve", "--prot", "1"], {}, ["--prot", "--port"]),
    "a token for all time": (["token", "alice", "--ttl", "9" * 400], {}, ["--ttl"]),
}


@pytest.mark.parametrize(("arguments", "environment", "words"), CALLS.values(), ids=CALLS.keys())
async def test_a_call_that_is_wrong_is_explained(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], words: list[str]
) -> None:
    complains(await greendot(tmp_path, *arguments, **environment), *words)


async def test_a_store_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "letter").write_text("Dear server, " * 100)
    for name in ("folder", "letter"):
        path = tmp_path / name
        complains(await greendot(tmp_path, "serve", "--port", "0", "--store", f"sqlite:///{path}"), f"the store {path}")


# --- the other commands ---


async def test_the_command_prints_its_version_and_its_subcommands(tmp_path: Path) -> None:
    version, flag, helped, serve = await asyncio.gather(
        *[greendot(tmp_path, *call) for call in (["version"], ["--version"], ["--help"], ["serve", "-h"])]
    )
    assert (version.code, version.out) == (0, f"greendot {__version__}\n")
    assert flag.code == 0
    assert __version__ in flag.out
    assert helped.code == serve.code == 0
    for command in ("serve", "token", "check-config", "version"):
        assert re.search(rf"^  {command}\b", helped.out, re.MULTILINE)
    for option in ("--host", "--port", "--engine", "--store", "--workers", "--dev", "--config"):
        assert option in serve.out


async def test_a_token_is_signed_with_the_secret_of_the_environment_or_of_the_dev_server(tmp_path: Path) -> None:
    own = ("--host", "127.0.0.1", "--store", "sqlite:///:memory:")
    async with running(tmp_path, "--dev", **DEV) as dev, running(tmp_path, *own) as server:
        for running_server, secret in ((dev, ""), (server, SECRET)):
            made = await greendot(
                tmp_path, "token", "alice", "--name", "Ada", "--room", "c*", GREENDOT_AUTH_SECRET=secret
            )
            assert made.code == 0
            async with await WireClient.connect(running_server.port) as alice:
                welcome = await alice.hello(made.out.strip())
                assert (welcome["user"], welcome["tenant"]) == ("alice", "default")
                assert (await alice.request(type="room.join", room="club"))["head"] == 0
                alice.send(type="room.join", room="attic")
                assert (await alice.receive("error"))["code"] == "not_a_member"
                (entry,) = (await alice.request(type="presence.get", users=["alice"]))["presence"]
                assert entry["name"] == "Ada"
            for other in (dev, server):
                if other is not running_server:
                    async with await WireClient.connect(other.port) as stranger:
                        stranger.send(type="hello", token=made.out.strip())
                        assert (await stranger.closed()).code == 4500


async def test_a_token_ends_when_it_was_asked_to(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1") as server, await WireClient.connect(server.port) as alice:
        made = await greendot(tmp_path, "token", "alice", "--ttl", "1s")
        alice.send(type="hello", token=made.out.strip())
        assert (await alice.closed()).code == 4005


# --- stopping ---


async def opcodes_to_the_end(client: WireClient) -> list[int]:
    """Return the opcodes of all frames that a client receives without answering."""
    seen = []
    try:
        while True:
            seen.append((await asyncio.wait_for(client._frame(), 10))[0])
    except Closed:
        return seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_drains_and_ends_it(tmp_path: Path, number: signal.Signals) -> None:
    async with running(tmp_path, "--dev") as server:
        client, newcomer = await server.client("alice"), await WireClient.connect(server.port)
        server.signal(number)
        frame = await client.receive("drain")
        assert frame["data"]["retry_in_ms"] > 0
        assert (await client.closed()).code == 4000
        assert (await newcomer.closed()).code == 4000
        ended = await server.ended(within_s=3)
        assert ended.code == 0
        assert "Traceback" not in ended.err
        with pytest.raises(ConnectionRefusedError):
            await WireClient.connect(server.port)


@pytest.mark.timing
async def test_it_ends_within_three_seconds_with_200_clients_and_one_that_never_answers(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1") as server:
        clients = await asyncio.gather(*[server.client(f"user{number}") for number in range(200)])
        mute = await server.client("mute")
        half = await asyncio.open_connection("127.0.0.1", server.port)
        half[1].write(b"GET /livez HTTP/1.1\r\n")
        lap = Lap(server.pid)
        server.signal(signal.SIGTERM)
        codes = [closed.code for closed in await asyncio.gather(*[client.closed() for client in clients])]
        assert codes == [4000] * 200
        ending = asyncio.create_task(server.ended())
        while not ending.done():
            assert lap.seconds < 3
            await asyncio.sleep(0.01)
        ended = await ending
        assert ended.code == 0
        # The client that never answered received the close frame, then was aborted.
        assert await opcodes_to_the_end(mute) == [TEXT, CLOSE]
        half[1].close()


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1", GREENDOT_SERVER_DRAIN_S="30") as server:
        mute = await server.client("mute")
        server.signal(signal.SIGTERM)
        await mute.receive("drain")
        server.signal(signal.SIGTERM)
        assert (await server.ended(within_s=3)).code == -signal.SIGTERM
        await mute.end()


# --- crashing ---


async def test_after_kill_9_rooms_and_messages_are_still_there_and_everyone_is_offline(tmp_path: Path) -> None:
    async with running(tmp_path, "--dev") as server:
        alice = await server.client("alice")
        await server.ask("PUT", "/v1/rooms/club", {"open": True})
        await server.ask("PUT", "/v1/rooms/club/members/bob")
        await alice.request(type="room.join", room="club")
        for number in range(20):
            await alice.request(type="room.send", room="club", body=number)
        await server.kill()
        assert (await alice.closed()).code == 1006
    async with running(tmp_path, "--dev") as server:
        rooms = (await server.ask("GET", "/v1/rooms")).json()["rooms"]
        expected = [("club", True, 20), ("design", True, 0), ("lobby", True, 0), ("random", True, 0)]
        assert [(r["room"], r["open"], r["head"]) for r in rooms] == expected
        assert (await server.ask("GET", "/v1/rooms/club/members")).json()["members"] == ["bob"]
        assert (await server.ask("GET", "/v1/presence/online")).json()["users"] == []
        assert (await server.ask("GET", "/v1/users/alice/presence")).json()["state"] == "offline"
        # A client of the dead server comes back: its session is not known, its messages are.
        resume = {"session": alice.welcome["session"], "rooms": {"club": 15}}
        back = await server.client("alice", resume=resume)
        assert back.welcome["resumed"] is False
        assert [frame["data"]["body"] for frame in await back.quiet()] == [15, 16, 17, 18, 19]
        assert (await back.request(type="room.send", room="club", body="on"))["seq"] == 21
        await back.end()


# --- real time ---


@pytest.mark.timing
async def test_a_killed_socket_is_reported_to_a_watcher_exactly_once(tmp_path: Path) -> None:
    periods = {
        "GREENDOT_PRESENCE_HEARTBEAT_S": "0.2",
        "GREENDOT_PRESENCE_DEAD_AFTER_S": "5",
        "GREENDOT_PRESENCE_GRACE_S": "0.4",
        "GREENDOT_PRESENCE_CLEAN_GRACE_S": "0.1",
    }
    async with running(tmp_path, "--dev", **periods) as server:
        watcher, alice = await server.client("watcher"), await server.client("alice")
        assert alice.welcome["heartbeat_s"] == 0.2
        await watcher.request(type="watch", users=["alice", "bob"])
        killed, lap = time.monotonic(), Lap(server.pid)
        await alice.reset()
        frame = await watcher.receive("presence.changed")
        assert time.monotonic() - killed > 0.3
        assert lap.seconds < 3
        assert (frame["data"]["user"], frame["data"]["state"]) == ("alice", "offline")
        assert frame["data"]["last_seen"] is not None
        # A second user leaves in the same way; the frames until then are all that were sent.
        bob = await server.client("bob")
        await bob.reset()
        states: list[tuple[str, Any]] = []
        while ("bob", "offline") not in states:
            data = (await watcher.receive("presence.changed"))["data"]
            states.append((data["user"], data["state"]))
        assert states == [("bob", "online"), ("bob", "offline")]
        assert await watcher.quiet() == []
        await watcher.end()


async def test_a_silent_client_is_closed_4002_and_offline_is_sent_once(tmp_path: Path) -> None:
    periods = {
        "GREENDOT_PRESENCE_HEARTBEAT_S": "0.2",
        "GREENDOT_PRESENCE_DEAD_AFTER_S": "0.5",
        "GREENDOT_PRESENCE_SILENT_GRACE_S": "0.1",
    }
    async with running(tmp_path, "--dev", **periods) as server:
        silent = await server.client("silent")
        watcher = await server.client("watcher")
        await watcher.request(type="watch", users=["silent"])
        told: list[str] = []
        async with asyncio.timeout(10):
            while not told:
                told += [frame["data"]["state"] for frame in await watcher.quiet()]
                await asyncio.sleep(0.05)  # sends heartbeats like a live client
        assert told == ["offline"]
        assert (await silent.closed()).code == 4002
        await watcher.end()


async def test_it_answers_http_while_clients_are_connected(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1") as server:
        clients = await asyncio.gather(*[server.client(f"user{number}") for number in range(50)])
        page = (await ask(server.port, "GET", "/v1/presence/online", Authorization=f"Bearer {API_KEY}")).json()
        assert page["count"] == 50
        for client in clients:
            await client.end()


async def test_a_second_server_on_the_same_store_is_refused_and_a_killed_one_is_not_in_the_way(tmp_path: Path) -> None:
    async with running(tmp_path, "--dev") as first:
        ended = await greendot(tmp_path, "serve", "--dev", "--port", "0")
        complains(ended, "another Greendot is running", "--store")
        first.signal(signal.SIGKILL)
        await first.ended()
    async with running(tmp_path, "--dev") as second:
        assert (await second.ask("GET", "/readyz")).status == 200
