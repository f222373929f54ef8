"""Run of one script with one runner."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from behaviour_driver.matching import matches
from behaviour_driver.peers import Peer
from behaviour_driver.proxy import Proxy, Rule
from behaviour_driver.runner import Runner, RunnerError
from behaviour_driver.scope import Scope
from behaviour_driver.script import Script, Step
from behaviour_driver.server import Server
from greendot.testing.wire import Closed

PATIENCE_S = 30.0  # for one step: only a failing script waits so long
EARLY_MS = 5  # timers of clients may fire that much too early
CLOCK_OFF_MS = 60_000
SHOWN = 40  # lines of the log in an error
BACKOFF = {"base_ms": 40, "cap_ms": 300}
EVENTS = ("state", "message", "gap", "notification", "typing", "presence", "removed", "error", "unreadable")
_numbers = itertools.count(1)


class Unmet(AssertionError):
    """Expectation of a script that was not met, with the last lines of the log."""


class Client:
    """State of one client of a run: its proxy, its events, and the tokens it gets."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.events: dict[str, list[dict[str, Any]]] = {kind: [] for kind in EVENTS}
        self.taken = dict.fromkeys(EVENTS, 0)  # number of events that steps have expected
        self.expected_frames: dict[str, int] = {}  # likewise of sent frames
        self.tokens: list[dict[str, Any]] = [{}]
        self.requests = 0  # for tokens
        self.is_connected = False
        self._failing_since: float | None = None

    def next_token(self, now: float) -> dict[str, Any]:
        """Return the next token of the script. A token that fails remains the next one for its time."""
        given = self.tokens[0]
        if "fails_for_ms" in given:
            self._failing_since = self._failing_since or now
            if now - self._failing_since < given["fails_for_ms"] / 1000:
                return given
            del self.tokens[0]
            return self.next_token(now)
        if len(self.tokens) > 1:
            del self.tokens[0]
        return given


class Run:
    """One script with one runner. Each run has its own users, rooms and proxies."""

    def __init__(self, script: Script, runner: Runner, server: Server, patience_s: float = PATIENCE_S) -> None:
        self._script = script
        self._runner = runner
        self._server = server
        self._patience_s = patience_s
        self._scope = Scope(f"{runner.name[:2]}{next(_numbers)}")
        self._clients: dict[str, Client] = {}
        self._peers: dict[str, Peer] = {}
        self._later: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._marks: dict[str, float] = {}
        self._news = asyncio.Event()
        self._log: list[str] = []
        self._began = time.monotonic()

    async def play(self) -> None:
        """Perform all steps. Raise Unmet if the client does not behave as the script expects."""
        step: Step | None = None
        self._runner.subscribe(self._scope.suffix, self._received)
        try:
            await self._open_rooms()
            for step in self._script.steps:
                self._note(str(step))
                if "mark" in step.fields:
                    self._marks[step.fields["mark"]] = time.monotonic()
                async with asyncio.timeout(self._patience_s):
                    await self._perform(step)
            step = None
            async with asyncio.timeout(PATIENCE_S):
                await self._nothing_left()
        except (AssertionError, RunnerError, Closed, TimeoutError) as error:
            problem = f"nothing matched in {self._patience_s:g} s" if isinstance(error, TimeoutError) else str(error)
            where = "after the last step" if step is None else str(step)
            log = "\n    ".join(self._log[-SHOWN:])
            raise Unmet(f"{self._script.name}, {where}: {problem}\n    {log}") from None
        finally:
            await self._end()

    async def _open_rooms(self) -> None:
        rooms = {step.fields["room"] for step in self._script.steps if "room" in step.fields}
        for room in sorted(rooms):
            await self._server.ask("PUT", f"/v1/rooms/{self._scope.wide(room)}", {"open": True})

    async def _end(self) -> None:
        for task in self._later.values():
            task.cancel()
        for client in self._clients.values():
            client.proxy.resume()
        with suppress(RunnerError, TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                for name, client in self._clients.items():
                    if client.is_connected:
                        await self._runner.call("end", client=self._scope.wide(name))
                if self._script.sets_clock:
                    await self._runner.call("clock", shift_ms=0)
        self._runner.unsubscribe(self._scope.suffix)
        for client in self._clients.values():
            await client.proxy.stop()
        for peer in self._peers.values():
            await peer.end()
        await asyncio.gather(*self._later.values(), return_exceptions=True)

    # Steps

    async def _perform(self, step: Step) -> None:
        name = step.fields.get("as", "bob" if step.kind == "peer" else "alice")
        fields = {key: value for key, value in step.fields.items() if key not in ("as", "mark")}
        kinds: dict[str, Callable[[str, Any, dict[str, Any]], Awaitable[None]]] = {
            "client": self._command,
            "peer": self._peer,
            "proxy": self._proxy,
            "server": self._restart,
            "app": self._app,
            "expect": self._expect,
            "none": self._none,
            "sent": self._sent,
            "total": self._total,
            "attempts": self._attempts,
            "tokens": self._tokens,
            "wait_ms": self._pause,
            "await": self._answered,
            "vary": self._vary,
        }
        await kinds[step.kind](name, step.value, fields)

    async def _command(self, name: str, do: str, fields: dict[str, Any]) -> None:
        later, pace = fields.pop("later", None), fields.pop("pace", None)
        checks = {key: fields.pop(key, None) for key in ("fails", "answer")}
        if do == "clock":
            await self._runner.call("clock", shift_ms=fields["shift_ms"])
            return
        if do == "connect":
            fields = await self._connecting(name, fields)
            self._clients[name].is_connected = True
        for key in ("room", "user"):
            if key in fields:
                fields[key] = self._scope.wide(fields[key])
        task = asyncio.create_task(self._runner.call(do, client=self._scope.wide(name), **fields))
        self._later[later or ""] = task
        if later is None:
            await self._answered(name, "", checks)
            if do == "now":
                off = task.result()["ms"] - time.time() * 1000
                assert abs(off) < CLOCK_OFF_MS, f"the client's estimate of the server's time is off by {off:g} ms"
            elif pace is not None:
                # The runner measures the time, and the last keystroke comes after it.
                most = int((task.result()["ms"] + EARLY_MS) / pace["every_ms"]) + 1
                await self._total(name, pace["type"], {"is": {"min": pace["least"], "max": most}})

    async def _connecting(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        client = self._clients.get(name)
        if client is None:
            proxy = Proxy(lambda: self._server.port, lambda text: self._note(f"{name}: {text}"))
            client = self._clients[name] = Client(proxy)
            await proxy.start()
        client.tokens = [*fields.pop("tokens", client.tokens)]
        url = f"ws://127.0.0.1:{client.proxy.port}/v1/connect"
        return {"url": url, "device": "suite", "backoff": BACKOFF} | fields

    async def _answered(self, name: str, later: str, checks: dict[str, Any]) -> None:
        """Wait for the answer of a command, and check the answer."""
        fails, expected = checks.get("fails"), checks.get("answer")
        try:
            answer = await self._later.pop(later)
        except RunnerError as error:
            if fails is None or not matches(fails, error.code):
                raise
            return
        assert fails is None, f"the command succeeded with {answer}, expected the error {fails}"
        found = self._scope.narrow(answer)
        assert expected is None or matches(expected, found), f"the answer was {found}"

    async def _peer(self, name: str, do: str, fields: dict[str, Any]) -> None:
        if do == "take_over":
            of = fields["of"]
            session = {"session": self._clients[of].proxy.session}
            self._peers[name] = await Peer.connect(self._server, self._scope, of, resume=session)
            return
        if name not in self._peers:
            self._peers[name] = await Peer.connect(self._server, self._scope, name)
        await self._peers[name].do(do, fields)

    async def _proxy(self, name: str, do: str, fields: dict[str, Any]) -> None:
        if name not in self._clients:  # a rule for the first connection
            await self._connecting(name, {})
        proxy = self._clients[name].proxy
        match do:
            case "cut" | "down" | "up" | "stall" | "resume":
                getattr(proxy, do)()
            case "delay":
                proxy.delay_s = fields["ms"] / 1000
            case "drop" | "change" | "repeat":
                times, put = fields.get("times"), fields.get("put", {})
                proxy.rules.append(Rule(do, fields.get("sender", "server"), fields["type"], times, put))
            case "pass":
                proxy.rules.clear()
            case "refuse":
                proxy.refusals += [(fields["status"], fields.get("retry_after_s"))] * fields.get("times", 1)
            case "inject":
                proxy.inject(fields["frame"])
            case "close":
                proxy.close(fields["code"], fields.get("reason", ""))

    async def _restart(self, name: str, do: str, fields: dict[str, Any]) -> None:
        if do != "start":
            await self._server.down(signal.SIGTERM if do == "restart" else signal.SIGKILL)
        if do != "kill":
            await self._server.up()

    async def _app(self, name: str, do: str, fields: dict[str, Any]) -> None:
        user = self._scope.wide(fields["user"])
        match do:
            case "notify":
                body = {"user": user, "kind": fields.get("kind", "note"), "body": fields["body"]}
                await self._server.ask("POST", "/v1/notifications", body)
            case "revoke":
                await self._server.ask("POST", "/v1/tokens/revoke", {"user": user})
            case "ban":
                await self._server.ask("PUT", f"/v1/bans/{user}", {})
            case "disconnect":
                session = self._clients[fields["user"]].proxy.session
                await self._server.ask("DELETE", f"/v1/sessions/{session}")

    # Expectations

    async def _expect(self, name: str, kind: str, fields: dict[str, Any]) -> None:
        client, not_before = self._clients[name], fields.pop("not_before", {})
        skip, bodies = fields.pop("skip", False), fields.pop("bodies", None)
        if fields.pop("flooded", False):
            bodies = [1, max(peer.flooded for peer in self._peers.values())]
        if bodies is not None:
            for body in range(bodies[0], bodies[1] + 1):
                await self._next(client, kind, fields | {"body": body}, skip=False)
            return
        at = await self._next(client, kind, fields, skip=skip)
        self._check_time(at, not_before)

    async def _next(self, client: Client, kind: str, fields: dict[str, Any], *, skip: bool) -> float:
        """Wait for the next event of this type; return its time. With `skip`, ignore events that do not match."""
        events = client.events[kind]
        while True:
            while client.taken[kind] < len(events):
                event = events[client.taken[kind]]
                client.taken[kind] += 1
                body = event.get("body")
                # Bodies of a flood have a number and a filling.
                found = event | {"body": body["n"]} if isinstance(body, dict) and "n" in body else event
                if matches(fields, found):
                    return float(event["at"])
                assert skip, f"the next {kind} event is {_short(event)}"
            await self._more()

    async def _none(self, name: str, kind: str, fields: dict[str, Any]) -> None:
        await self._sync(name)
        client = self._clients[name]
        left = client.events[kind][client.taken[kind] :]
        assert not left, f"unexpected {_short(left)}"

    async def _sent(self, name: str, kind: str, fields: dict[str, Any]) -> None:
        client, not_before, skip = self._clients[name], fields.pop("not_before", {}), fields.pop("skip", False)
        while True:
            sent = [one for one in client.proxy.sent if one.frame.get("type") == kind]
            taken = client.expected_frames.get(kind, 0)
            if taken < len(sent):
                client.expected_frames[kind] = taken + 1
                found = self._scope.narrow(sent[taken].frame)
                if matches(fields, found):
                    self._check_time(sent[taken].at, not_before)
                    return
                assert skip, f"the next {kind} frame is {_short(found)}"
                continue
            await self._more()

    async def _total(self, name: str, kind: str, fields: dict[str, Any]) -> None:
        await self._sync(name)
        number = sum(one.frame.get("type") == kind for one in self._clients[name].proxy.sent)
        assert matches(fields["is"], number), f"the client has sent {number} {kind} frames"

    async def _attempts(self, name: str, number: int, fields: dict[str, Any]) -> None:
        attempts = self._clients[name].proxy.attempts
        while len(attempts) < number:
            await self._more()
        assert len(attempts) == number, f"the client has opened {len(attempts)} connections"
        self._check_time(attempts[-1], fields.get("not_before", {}))

    async def _tokens(self, name: str, expected: Any, fields: dict[str, Any]) -> None:
        client = self._clients[name]
        while not matches(expected, client.requests):
            most = expected if isinstance(expected, int) else expected.get("max", client.requests + 1)
            assert client.requests < most, f"the client has requested {client.requests} tokens"
            await self._more()

    async def _pause(self, name: str, milliseconds: int, fields: dict[str, Any]) -> None:
        began = self._marks.get(fields.get("since", ""), time.monotonic())
        await asyncio.sleep(max(0.0, began + milliseconds / 1000 - time.monotonic()))

    async def _vary(self, name: str, number: int, fields: dict[str, Any]) -> None:
        kind, field = fields["event"], fields["field"]
        values = [event[field] for one in self._clients.values() for event in one.events[kind] if event.get(field)]
        assert len(set(values)) >= number, f"the clients' {field} are {values}"

    def _check_time(self, at: float, not_before: dict[str, int]) -> None:
        for mark, milliseconds in not_before.items():
            passed = (at - self._marks[mark]) * 1000
            assert passed >= milliseconds - EARLY_MS, f"only {passed:.0f} ms after {mark}, expected {milliseconds}"

    async def _nothing_left(self) -> None:
        """Check that every event was expected, except those that the script ignores."""
        for name, client in self._clients.items():
            if not client.is_connected:
                continue
            await self._sync(name)
            for kind in EVENTS:
                left = client.events[kind][client.taken[kind] :]
                assert not left or kind in self._script.ignore, f"unexpected {kind} events: {_short(left)}"

    async def _sync(self, name: str) -> None:
        """Wait until the runner has printed all events that the server has sent."""
        await self._runner.call("sync", client=self._scope.wide(name))

    # Events

    async def _more(self) -> None:
        self._news.clear()
        await self._news.wait()

    def _received(self, event: dict[str, Any]) -> None:
        event = self._scope.narrow(event) | {"at": time.monotonic()}
        client = self._clients.get(event.get("client", ""))
        self._note(f"event {_short(event)}")
        if event["event"] == "unreadable":  # a line without a client
            client = next(iter(self._clients.values()))
        if client is None:
            return  # of an earlier run
        if event["event"] == "token":
            self._give_token(event, client)
        elif event["event"] in EVENTS:
            client.events[event["event"]].append(event)
        self._news.set()

    def _give_token(self, event: dict[str, Any], client: Client) -> None:
        client.requests += 1
        given = client.next_token(time.monotonic())
        self._note(f"token {client.requests}: {given}")
        if "fails_for_ms" in given:
            self._runner.send(do="token", request=event["request"], error="the backend is unavailable")
            return
        token = self._server.token(self._scope.wide(event["client"]), given.get("ttl_s", 3600))
        if given.get("is_invalid"):
            token = token[:-4] + "AAAA"
        self._runner.send(do="token", request=event["request"], token=token)

    def _note(self, text: str) -> None:
        self._log.append(f"{time.monotonic() - self._began:7.3f} {text.replace(self._scope.suffix, '')[:400]}")
        self._news.set()


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 600 else f"{text[:600]}…"
