"""`greendot top` and `greendot tail` in a real terminal and in pipes, with a real server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from e2e.processes import PATIENCE_S, Process, greendot, running, start
from e2e.pseudoterminal import in_a_terminal
from greendot.testing import WireClient

KEY = "the key of whoever runs this server"
ON = {"GREENDOT_ADMIN_ENABLED": "true", "GREENDOT_ADMIN_KEY": KEY, "GREENDOT_LIMITS_ENABLED": "false"}


async def chat(*clients: WireClient) -> None:
    """Send messages from all clients in turn until cancelled."""
    while True:
        for client in clients:
            await client.request(type="room.send", room="lobby", body="hello")


@asynccontextmanager
async def chatting(server: Process, *users: str) -> AsyncIterator[list[WireClient]]:
    await server.ask("PUT", "/v1/rooms/lobby", {"open": True})
    clients = [await server.client(user) for user in users]
    for client in clients:
        await client.request(type="room.join", room="lobby")
    talk = asyncio.create_task(chat(*clients))
    try:
        yield clients
    finally:
        talk.cancel()
        await asyncio.gather(talk, return_exceptions=True)
        for client in clients:
            await client.end()


# --- top ---


async def test_a_screen_fits_its_terminal_answers_keys_waits_for_a_server_and_is_left_as_it_was(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1", **ON) as server:
        url = ("--url", f"http://127.0.0.1:{server.port}")
        async with chatting(server, "ann", "bob"), in_a_terminal(tmp_path, "top", *url, **ON) as terminal:
            text = await terminal.shows(lambda text: "room default/lobby" in text and "deliveries" in text)
            lines = terminal.screen.lines
            assert len(lines) == 24
            assert all(len(line) <= 80 for line in lines)
            assert "1 node  2 connections  2 users" in lines[0]
            assert "load normal" in text
            assert lines[-1] == "q quit  p pause  s sort: connections"
            terminal.press("s")
            await terminal.shows(lambda text: "s sort: deliveries" in text)
            terminal.press("p")
            text = await terminal.shows(lambda text: "paused" in text.splitlines()[0])
            terminal.resize(40, 12)
            await terminal.shows(lambda text: len(text.splitlines()) == 12)
            assert all(len(line) <= 40 for line in terminal.screen.lines)
            assert "NODE" in terminal.text
            assert "paused" in terminal.text
            for columns, rows in ((5, 2), (0, 0), (300, 90), (80, 24)):
                terminal.resize(columns, rows)
                most = rows or 24
                await terminal.shows(lambda text, most=most: len(text.splitlines()) == most or text == "too s")
            terminal.press("p\x1b[A")
            await terminal.shows(lambda text: "paused" not in text)
        assert not terminal.is_as_it_was  # a killed program leaves the terminal changed, and the test detects it


async def test_a_server_that_goes_away_is_waited_for_and_q_and_ctrl_c_leave_the_terminal_as_it_was(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, "--host", "127.0.0.1", **ON) as server:
        flags = ("--host", "127.0.0.1", "--port", str(server.port))
        url = ("--url", f"http://127.0.0.1:{server.port}")
        async with (
            in_a_terminal(tmp_path, "top", *url, **ON) as quits,
            in_a_terminal(tmp_path, "top", *url, **ON) as cut,
        ):
            await asyncio.gather(*(it.shows(lambda text: "1 node" in text) for it in (quits, cut)))
            await server.kill()
            await asyncio.gather(*(it.shows(lambda text: "Waiting, " in text) for it in (quits, cut)))
            async with running(tmp_path, *flags, **ON):
                await asyncio.gather(*(it.shows(lambda text: "Waiting, " not in text) for it in (quits, cut)))
                quits.press("q")
                cut.press("\x03")
                assert (await quits.ended(), await cut.ended()) == (0, 130)
                assert quits.is_as_it_was
                assert cut.is_as_it_was
                assert "Traceback" not in quits.text + cut.text


async def test_top_once_prints_text_or_json_and_reports_errors_before_it_takes_the_screen(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, "--host", "127.0.0.1", **ON) as server:
        url = ("--url", f"http://127.0.0.1:{server.port}")
        async with chatting(server, "ann", "bob"):
            plain, piped = await asyncio.gather(
                greendot(tmp_path, "top", "--once", *url, **ON),
                greendot(tmp_path, "top", "--once", "--json", *url, **ON),
            )
        assert (plain.code, piped.code) == (0, 0), plain.err + piped.err
        assert "\x1b" not in plain.out
        assert "room default/lobby" in plain.out
        look: dict[str, Any] = json.loads(piped.out)
        assert look["rates"]["realtime_socket_send_total"] > 0
        (hot,) = [it for it in look["hot"] if it["name"] == "lobby"]
        assert hot["listeners"] == 2
        assert hot["per_s"] > 0
        (node,) = look["nodes"]
        assert node["state"] == "live"
        unknown = await greendot(tmp_path, "top", "--once", *url, **ON | {"GREENDOT_ADMIN_KEY": "another key " * 4})
        assert unknown.code == 2
        assert "refused the key: unknown key" in unknown.err
    gone, wrong = await asyncio.gather(
        greendot(tmp_path, "top", *url, **ON), greendot(tmp_path, "top", "--url", "ftp://x", **ON)
    )
    assert (gone.code, gone.out, wrong.code) == (2, "", 2)
    assert gone.err.startswith(f"greendot: no server answers at {url[1]}: ")
    assert gone.err.count("\n") == 1


async def test_a_disconnect_shows_its_effect_and_asks_for_confirmation(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1", **ON) as server:
        devices = [await server.client("ann", device=name) for name in ("laptop", "phone")]
        asking = ("disconnect", "--user", "ann", "--url", f"http://127.0.0.1:{server.port}")
        async with in_a_terminal(tmp_path, *asking, **ON) as doubts, in_a_terminal(tmp_path, *asking, **ON) as agrees:
            for terminal in (doubts, agrees):
                await terminal.shows(lambda text: "Disconnect ann (default)? [y/N]" in text)
            assert "2 sessions of ann will be closed with 4503 on every node" in doubts.text.replace("\n", "")
            doubts.press("\n")
            assert await doubts.ended() == 2
            assert "no session was closed" in doubts.text
            assert [await device.quiet() for device in devices] == [[], []]
            agrees.press("y\n")
            assert await agrees.ended() == 0
            assert "2 sessions disconnected (4503)." in agrees.text
        assert [(await device.closed()).code for device in devices] == [4503, 4503]
        for device in devices:
            await device.end()


# --- tail ---


class Tail:
    """Process whose output lines are read."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []

    async def ready(self) -> None:
        await self.says("Following")

    async def says(self, word: str) -> None:
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            while not self.said or word not in self.said[-1]:
                line = (await self.process.stderr.readline()).decode()
                assert line, self.said
                self.said.append(line)

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), PATIENCE_S)).decode()

    async def event(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(await self.line())
        return data


@asynccontextmanager
async def tailing(folder: Path, *arguments: str) -> AsyncIterator[Tail]:
    process = await start(folder, "tail", *arguments, **ON)
    try:
        yield Tail(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_tail_shows_live_events_that_match_its_filters_and_the_number_of_dropped_events(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1", **ON) as server:
        await server.ask("PUT", "/v1/rooms/lobby", {"open": True})
        url = ("--url", f"http://127.0.0.1:{server.port}")
        async with (
            tailing(tmp_path, *url) as people,
            tailing(tmp_path, "--json", "--user", "ann", "--type", "rooms", "--type", "typing", *url) as some,
        ):
            await asyncio.gather(people.ready(), some.ready())
            bob, ann = await server.client("bob"), await server.client("ann", device="phone")
            for client in (bob, ann):
                await client.request(type="room.join", room="lobby")
            ann.send(type="typing.start", room="lobby")
            bob.send(type="room.send", room="nowhere", body=1, id=1)
            seen = [await some.event(), await some.event()]
            assert [(it["user"], it["what"], it["kind"], it["room"]) for it in seen] == [
                ("ann", "joined", "rooms", "lobby"),
                ("ann", "typing", "typing", "lobby"),
            ]
            told = [await people.line()]
            while "errors" not in told[-1]:
                told.append(await people.line())
            assert any("connects" in line and "connected" in line and "bob" in line for line in told)
            assert any("presence" in line and "online" in line and "ann" in line for line in told)
            assert "not_a_member" in told[-1]
            assert "in nowhere" in told[-1]

            # More events than a node keeps: the rest is counted, and senders are not slowed down.
            for number in range(400):
                ann.send(type="room.send", room="lobby", body=number, id=number)
            async with asyncio.timeout(PATIENCE_S):
                while (await ann.receive()).get("id") != 399:
                    pass
            left_out = 0
            while not left_out:
                left_out = (await some.event()).get("skipped", 0)
            assert 0 < left_out < 400

            # Ctrl-C prints a summary and nothing else.
            some.process.send_signal(signal.SIGINT)
            out, err = await asyncio.wait_for(some.process.communicate(), PATIENCE_S)
            assert some.process.returncode == 130
            # On a busy machine the events came in more than one report.
            left_out += sum(json.loads(line).get("skipped", 0) for line in out.splitlines())
            assert f"{left_out} skipped." in err.decode()
            assert "Traceback" not in err.decode()
            await ann.end()
            await bob.end()


async def test_a_tail_ends_when_its_reader_closes_and_reports_a_server_that_stops(tmp_path: Path) -> None:
    async with running(tmp_path, "--host", "127.0.0.1", **ON) as server:
        url = f"http://127.0.0.1:{server.port}"
        async with tailing(tmp_path, "--url", url) as stays:
            command = f'"{sys.executable}" -m greendot tail --url {url} | head -1'
            head = await asyncio.create_subprocess_shell(
                command, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=os.environ | ON
            )
            try:
                assert head.stderr is not None
                await asyncio.wait_for(head.stderr.readline(), PATIENCE_S)
                await stays.ready()
                ann = await server.client("ann")
                out, err = await asyncio.wait_for(head.communicate(), PATIENCE_S)
            finally:
                if head.returncode is None:
                    head.kill()
                    await head.communicate()
            assert out.count(b"\n") == 1
            assert b"Traceback" not in err
            assert b"BrokenPipe" not in err
            await server.kill()
            await stays.says("Waiting for the server")
            async with running(tmp_path, "--host", "127.0.0.1", "--port", str(server.port), **ON):
                await stays.says("The server is back")
            await ann.end()
