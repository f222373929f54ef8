"""Examples of docs/client.md with a real server."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from greendot import client
from greendot.client import Client
from greendot.protocol.events import RoomMessage
from greendot.store.inbox import Notice
from greendot.testing import Served, serving

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
PROGRAM, *SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def url(served: Served) -> str:
    return f"ws://127.0.0.1:{served.port}/v1/connect"


async def notify(served: Served, user: str, first: int, last: int) -> None:
    notices = [Notice("default", user, "news", b"%d" % n, f"k{n}", 0) for n in range(first, last + 1)]
    await served.node.inbox_service.notify(notices)


class Program:
    """The page's program, which the test runs several times and kills."""

    def __init__(self, served: Served, directory: Path) -> None:
        self.lines: list[list[str]] = []  # output of each run
        self._directory = directory
        self._environment = {**os.environ, "GREENDOT_URL": url(served), "GREENDOT_TOKEN": served.token("bob")}

    @property
    def printed(self) -> list[str]:
        return [line for lines in self.lines for line in lines]

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM), cwd=self._directory, env=self._environment, stdout=asyncio.subprocess.PIPE
        )
        self.lines.append([])
        reading = asyncio.create_task(self._read(process.stdout))
        try:
            yield
        finally:
            process.kill()
            await process.wait()
            await reading

    async def _read(self, output: asyncio.StreamReader | None) -> None:
        assert output is not None
        async for line in output:
            if line.endswith(b"\n"):  # an incomplete line was cut off by the kill
                self.lines[-1].append(line.decode().strip())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (output of another process)
            await asyncio.sleep(0.005)


async def test_a_program_killed_at_any_time_receives_all_messages_in_order(tmp_path: Path) -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        await notify(served, "bob", 1, 3)
        program = Program(served, tmp_path)
        async with Client(url(served), served.token("alice")) as alice:
            await alice.join("lobby")
            for run in range(3):
                sent = run * 40
                for number in range(sent + 1, sent + 21):
                    await alice.send("lobby", number)
                async with program.run():
                    sending = asyncio.create_task(say(alice, sent + 21, sent + 40))
                    # In the middle of missed and live messages.
                    await until(lambda sent=sent, run=run: f"lobby {sent + 7 * (run + 1)} " in str(program.lines[-1]))
                await sending
                await notify(served, "bob", 4 + run, 4 + run)
            async with program.run():
                await until(lambda: any("lobby 120 " in line for line in program.printed))
                await notify(served, "bob", 7, 7)
                await until(lambda: any("inbox 7 " in line for line in program.printed))
        for stream, last in (("lobby", 120), ("inbox", 7)):
            told = [[int(line.split()[1]) for line in run if line.startswith(stream)] for run in program.lines]
            assert all(run == sorted(set(run)) for run in told)
            assert list(dict.fromkeys(number for run in told for number in run)) == [*range(1, last + 1)]
            # After a kill at most one record is delivered again: printed but not saved.
            assert sum(map(len, told)) <= last + len(told) - 1


async def say(client: Client, first: int, last: int) -> None:
    for number in range(first, last + 1):
        await client.send("lobby", number)


PRINTED = {
    "staying": "connected 0 unanswered",
    "rooms": "1 to 3",
    "reactions": "[('👍', 1, True)]",
    "typing": "Alice and Bob are typing… 7 people are typing…\nAlice und Bob schreiben …\n",
    "presence": "star away\noffline\noffline\n",
    "inbox": "2 2",
}
NAMES = {name: vars(client)[name] for name in ("TypingWords", "body_of", "seen_text", "typing_text")}


@pytest.mark.parametrize(("snippet", "printed"), [*zip(SNIPPETS, PRINTED.values(), strict=True)], ids=PRINTED)
async def test_the_other_examples_run(snippet: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(presence={"polled": ("default/star",)}) as served:
        await served.lobby()
        await served.node.store.put_room("default", "lobby", receipts=True)
        await notify(served, "carol", 1, 2)
        async with Client(url(served), served.token("carol")) as me:
            names: dict[str, Any] = {**NAMES, "RoomMessage": RoomMessage}
            exec("async def example(me):\n" + textwrap.indent(snippet, "    "), names)
            await names["example"](me)
            assert me.inbox.unread == (0 if "inbox" in snippet else 2)
    assert printed in capsys.readouterr().out
