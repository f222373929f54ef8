"""App backend that creates lists of notifications over HTTP: `notify.py PORT KEY USERS SECONDS WARMUP`.

Each connection has one request in flight. Requests are built in advance. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time

CONNECTIONS = 8
LIST = 100
REQUESTS = 200  # number of different requests


def build(port: int, key: str, users: int) -> bytes:
    chosen = random.sample(range(users), LIST)
    body = json.dumps(
        {"notifications": [{"user": f"u{n}", "kind": "note", "body": {"text": "x" * 100}} for n in chosen]}
    ).encode()
    head = (
        f"POST /v1/notifications HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Backend:
    def __init__(self, port: int, requests: list[bytes]) -> None:
        self.port = port
        self.requests = requests
        self.done = 0
        self.took: list[float] = []

    async def go_on(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**20)
        while True:
            start = time.monotonic()
            writer.write(random.choice(self.requests))
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 201"):
                raise SystemExit(f"notify: {head.decode()}")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(size)
            self.done += 1
            self.took.append(time.monotonic() - start)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main(port: int, key: str, users: int, seconds: float, warmup: float) -> None:
    backend = Backend(port, [build(port, key, users) for _ in range(REQUESTS)])
    tasks = [asyncio.create_task(backend.go_on()) for _ in range(CONNECTIONS)]
    await asyncio.wait(tasks, timeout=warmup, return_when=asyncio.FIRST_COMPLETED)
    before, start, used = backend.done, time.monotonic(), cpu()
    backend.took.clear()
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    took = time.monotonic() - start
    per_s = (backend.done - before) * LIST / took
    p50 = sorted(backend.took)[len(backend.took) // 2] * 1000
    print(json.dumps({"per_s": per_s, "p50_ms": p50, "generator_cpu": (cpu() - used) / took}), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])))
