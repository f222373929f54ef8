"""Conversation with a server as data: steps and their results. It can be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from e2e.processes import exchange
from greendot.testing import Closed, Served, WireClient

Step = dict[str, Any]
# Values that differ each time or are for people: only their presence is compared.
FREE = frozenset({"id", "ids", "ts", "session", "node", "message", "detail", "token", "expires_at", "retry_in_ms"})


async def have(served: Served, steps: list[Step]) -> list[Step]:
    """Run these steps in order and return each with its reply and the events of each client.

    A step is one of `hello` (a client's name; `user`, `fields`), `say` (a command, `by` a client), `ask` (method, path
    and body of a request), `advance` (seconds) and `stop`. `$2.answer.id` refers to the result of step 2.
    """
    had: list[Step] = []
    clients: dict[str, WireClient] = {}
    for number, step in enumerate(steps):
        given = {key: value for key, value in step.items() if key not in ("answer", "heard")}
        played = _filled(given, had)
        heard: dict[str, list[Any]] = {name: [] for name in clients}
        if "advance" in step:
            for name, frames in zip(heard, await served.advance(step["advance"], clients.values()), strict=True):
                heard[name] += frames
        answer = await _take(served, clients, played, number)
        await served.settle()
        for name in [*clients]:
            heard[name] = heard.get(name, []) + await _rest(clients, name)
        had.append(given | {"answer": answer, "heard": {name: frames for name, frames in heard.items() if frames}})
    return had


async def _rest(clients: dict[str, WireClient], name: str) -> list[Any]:
    """Return the frames that the client has received so far. A closed client is removed."""
    frames: list[Any] = []
    client = clients[name]
    client.send(type="heartbeat")
    try:
        while (frame := await client.receive())["type"] != "heartbeat.ack":
            frames.append(frame)
    except Closed as closed:
        frames.append({"type": "closed", "code": closed.code})
        del clients[name]
    return frames


async def _take(served: Served, clients: dict[str, WireClient], step: Step, number: int) -> Any:
    if "hello" in step:
        fields = step.get("fields", {})
        clients[step["hello"]] = client = await served.socket()
        return await client.hello(served.token(step["user"], **step.get("claims", {})), **fields)
    if "say" in step:
        answer = await _say(clients[step["by"]], step["say"], number)
        if answer["type"] == "closed":
            del clients[step["by"]]
        return answer
    if "ask" in step:
        return await _ask(served, *step["ask"])
    if "stop" in step:
        await served.node.drain(0.2)
    return None


async def _say(client: WireClient, command: dict[str, Any], number: int) -> Any:
    client.send(**command, id=number)
    kept = []
    try:
        while (frame := await client.receive()).get("id") != number:
            kept.append(frame)
    except Closed as closed:
        return {"type": "closed", "code": closed.code}
    client._unread[:0] = kept
    return frame


async def _ask(served: Served, method: str, path: str, body: Any = None) -> Any:
    data = b"" if body is None else msgspec.json.encode(body)
    key = "an API key for tests"
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(data)}\r\n"
    answer = await exchange(served.port, f"{head}Connection: close\r\n\r\n".encode() + data)
    return {"status": answer.status, "body": answer.json() if answer.body else None}


def _filled(value: Any, had: list[Step]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, had) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, had) for each in value]
    if isinstance(value, str) and value.startswith("$"):
        number, *path = value[1:].split(".")
        found: Any = had[int(number)]
        for part in path:
            found = found[int(part)] if isinstance(found, list) else found[part]
        return found
    return value


def differences(then: Any, now: Any, at: str = "", events: frozenset[str] | None = None) -> Iterator[str]:
    """Yield the places where the new result breaks a program for the old one.

    New fields are no difference, and neither are events of new types (`events` has the old types): old programs ignore
    both.
    """
    if isinstance(then, dict) and isinstance(now, dict):
        for key, value in then.items():
            if key not in now:
                yield f"{at}.{key} is gone; it was {value!r}"
            elif key not in FREE or value is None:
                yield from differences(value, now[key], f"{at}.{key}", events)
            elif type(value) is not type(now[key]):
                yield f"{at}.{key} was {value!r} and is {now[key]!r}"
    elif isinstance(then, list) and isinstance(now, list):
        known = [each for each in now if _is_known(each, events)]
        if len(then) != len(known):
            yield f"{at}: {len(then)} entries, and now {len(known)}: {then!r}, {known!r}"
        else:
            for number, (one, other) in enumerate(zip(then, known, strict=True)):
                yield from differences(one, other, f"{at}[{number}]", events)
    elif type(then) is not type(now) or then != now:
        yield f"{at} was {then!r} and is {now!r}"


def _is_known(entry: Any, events: frozenset[str] | None) -> bool:
    return not isinstance(entry, dict) or events is None or "v" not in entry or entry["type"] in events
