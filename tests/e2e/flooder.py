"""Flooding client in its own process, so that it does not slow down the process that measures.

`python flooder.py PORT ROOM COMMAND RATE TOKEN TOKEN…`: the first client floods, the others listen. A line on standard
input starts a flood. The next line ends it and prints its result. The program ends with its input.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time

import msgspec
import uvloop

from greendot.testing import WireClient
from greendot.testing.wire import TEXT, make_frame

EVERY_S = 0.002
ERROR = re.compile(rb'"type":"error","id":0,"code":"(\w+)","message":"([^;]+); retry after (\d+) ms"')


class Flood(msgspec.Struct):
    """Result of one flood."""

    sent: int = 0
    granted: int = 0
    refused: int = 0
    codes: set[str] = set()
    reasons: set[str] = set()  # messages of the errors, without the wait
    waits_ms: set[int] = set()
    seconds: float = 0.0  # from the first command to the last reply
    closed: bool = False


class Flooder:
    """Client that floods a room and counts replies and errors."""

    def __init__(self, client: WireClient, frame: bytes, rate: float) -> None:
        self._client = client
        self._frame = frame
        self._rate = rate
        self._received = bytearray()  # bytes since the start of the flood; parsed after its end, which costs least
        self._closed = False

    async def read(self) -> None:
        await self._client.read_raw(self._received.extend)
        self._closed = True

    async def flood(self, lines: asyncio.StreamReader) -> Flood:
        self._received.clear()
        over = asyncio.create_task(lines.readline())
        begun, sent = time.monotonic(), 0
        while not over.done() and not self._closed:
            due = int((time.monotonic() - begun) * self._rate) - sent
            self._client.send_bytes(self._frame * due)
            sent += due
            await asyncio.sleep(EVERY_S)
        await over
        while not self._closed and self._answered() < sent:  # noqa: ASYNC110  (no event counts replies)
            await asyncio.sleep(EVERY_S)
        return self._found(sent, time.monotonic() - begun)

    def _answered(self) -> int:
        return self._received.count(b'"type":"reply"') + self._received.count(b'"type":"error"')

    def _found(self, sent: int, seconds: float) -> Flood:
        errors = [[part.decode() for part in found] for found in ERROR.findall(self._received)]
        return Flood(
            sent=sent,
            granted=self._received.count(b'"type":"reply"'),
            refused=len(errors),
            codes={code for code, _, _ in errors},
            reasons={reason for _, reason, _ in errors},
            waits_ms={int(wait) for _, _, wait in errors},
            seconds=seconds,
            closed=self._closed,
        )


async def joined(port: int, token: str, room: str) -> WireClient:
    client = await WireClient.connect(port)
    await client.hello(token)
    await client.request(type="room.join", room=room)
    return client


async def main(port: int, room: str, command: str, rate: float, *tokens: str) -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    client, *listeners = [await joined(port, token, room) for token in tokens]
    said = {"type": command, "room": room, "body": {}, "id": 0} | ({"kind": "x"} if command == "signal.send" else {})
    flooder = Flooder(client, make_frame(TEXT, msgspec.json.encode(said)), rate)
    tasks = [asyncio.create_task(flooder.read()), *(asyncio.create_task(other.read_raw(len)) for other in listeners)]
    print("ready", flush=True)
    while await lines.readline():
        print(msgspec.json.encode(await flooder.flood(lines)).decode(), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for each in (client, *listeners):
        await each.end()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]), *sys.argv[5:]))
