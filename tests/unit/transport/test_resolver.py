"""Resolver: names with silent servers block few threads, and no look-ups of other names."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.processes import until
from greendot.testing import ManualClock
from greendot.transport import resolver
from greendot.transport.resolver import KEEP_S, STRANGERS, Bounds, NotResolved, Resolver, ResolverBusy
from silent_names import SilentNames, silent_names

FEW = Bounds(at_once=6, each_share=3, each_domain=2, patience_s=0.2, pause_s=10.0, longest_pause_s=60.0)
SLOW = Bounds(at_once=6, each_share=3, each_domain=2, patience_s=60.0)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentNames]:
    with silent_names(monkeypatch) as found:
        yield found


class Answers:
    """Scripted answers for names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.answer: Callable[[str], resolver._Outcome] = lambda host: resolver._Outcome(["192.0.2.1"])
        monkeypatch.setattr(resolver, "_look_up", self._look_up)

    def _look_up(self, host: str) -> resolver._Outcome:
        self.asked.append(host)
        return self.answer(host)


async def failure(names: Resolver, host: str, share: str = "t1") -> str:
    with pytest.raises((NotResolved, ResolverBusy)) as error:
        await names.addresses(host, share)
    return f"{type(error.value).__name__}: {error.value}"


async def ended(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def begun(of: Resolver, hosts: list[str], share: str = "t1") -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(of.addresses(host, share)) for host in hosts]


async def test_addresses_need_no_thread() -> None:
    of = Resolver(STRANGERS)
    for host in ("127.0.0.1", "::1", "127.1", "2130706433"):
        assert [*await of.addresses(host)] in (["127.0.0.1"], ["::1"])
    assert of.under_way == 0


async def test_a_name_is_looked_up_once_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch)
    of = Resolver(STRANGERS)
    found = await asyncio.gather(*begun(of, ["a.example", "A.example"] * 20))
    assert {tuple(one) for one in found} == {("192.0.2.1",)}
    assert answers.asked == ["a.example"]
    await of.addresses("a.example")
    assert answers.asked == ["a.example"] * 2, "an answer is as fresh as the call"


async def test_silent_names_of_a_tenant_leave_room_for_another(names: SilentNames) -> None:
    of = Resolver(SLOW)
    waiting = begun(of, [f"x.silent{number}.test" for number in range(20)])
    await until(lambda: names.under_way == 3)
    assert [*await of.addresses("localhost", "t2")] != []
    assert (names.under_way, of.under_way) == (3, 3)
    await ended(waiting)


async def test_silent_names_of_a_domain_leave_room_for_others_of_the_tenant(names: SilentNames) -> None:
    of = Resolver(SLOW)
    waiting = begun(of, [f"x{number}.evil.test" for number in range(20)])
    await until(lambda: names.under_way == 2)
    assert [*await of.addresses("localhost", "t1")] != []
    assert names.under_way == 2
    await ended(waiting)


async def test_look_ups_of_all_tenants_together_are_limited(names: SilentNames) -> None:
    of = Resolver(SLOW)
    waiting = [
        task
        for tenant in range(5)
        for task in begun(of, [f"x.silent{tenant}{number}.test" for number in range(5)], f"t{tenant}")
    ]
    await until(lambda: names.under_way == 6)
    await ended(waiting)
    assert of._waiting == {}, "a cancelled look-up must free its slot"


async def test_a_silent_name_fails_in_time_and_at_once_while_its_thread_is_blocked(names: SilentNames) -> None:
    clock = ManualClock()
    of = Resolver(FEW, clock.monotonic)
    assert await failure(of, "x.evil.test") == (
        "NotResolved: x.evil.test could not be resolved: its name server did not answer within 0.2 s"
    )
    clock.advance(3_600)
    of._bounds = SLOW  # a look-up would take a minute
    async with asyncio.timeout(10):
        assert "did not answer" in await failure(of, "x.evil.test")
    assert (names.asked, of.under_way) == (["x.evil.test"], 1)


async def test_a_lookup_without_a_free_thread_in_time_is_refused_and_can_be_repeated(names: SilentNames) -> None:
    of = Resolver(FEW)
    waiting = begun(of, ["x1.evil.test", "x2.evil.test"])
    await until(lambda: names.under_way == 2)
    assert (await failure(of, "x3.evil.test")).startswith("ResolverBusy: x3.evil.test was not looked up")
    assert of.counts.refused == 1
    await asyncio.gather(*waiting, return_exceptions=True)
    names.release()
    await until(lambda: of.under_way == 0)
    assert "could not be resolved" in await failure(of, "x3.evil.test"), "the look-up must run when a thread is free"


async def test_waiting_look_ups_get_their_turn_when_another_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, gate = Answers(monkeypatch), threading.Event()

    def answer(host: str) -> resolver._Outcome:
        gate.wait(20)
        return resolver._Outcome(["192.0.2.2"])

    answers.answer = answer
    of = Resolver(SLOW)
    tasks = begun(of, [f"x{number % 10}.shop.example" for number in range(30)])
    await until(lambda: len(answers.asked) == 2)
    tasks[5].cancel()
    gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [one for one in found if one != ["192.0.2.2"]] == [found[5]]
    assert sorted(answers.asked) == [f"x{number}.shop.example" for number in range(10)]
    assert (of.under_way, of._waiting) == (0, {})


async def test_failures_are_remembered_for_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, clock = Answers(monkeypatch), ManualClock()
    answers.answer = lambda host: resolver._Outcome(reason="no such name", is_final=True)
    of = Resolver(FEW, clock.monotonic)
    for pause_s in (10, 20, 40, 60, 60):
        for _ in range(3):
            assert "no such name" in await failure(of, "gone.example")
        clock.advance(pause_s - 1)
        assert "no such name" in await failure(of, "gone.example")
        clock.advance(1)
    assert (len(answers.asked), of.counts.failed) == (5, 5)
    answers.answer = lambda host: resolver._Outcome(["192.0.2.1"])
    assert [*await of.addresses("gone.example")] == ["192.0.2.1"]
    answers.answer = lambda host: resolver._Outcome(reason="again")
    assert [*await of.addresses("gone.example")] == ["192.0.2.1"]
    clock.advance(10)
    await of.addresses("gone.example")
    assert len(answers.asked) == 8, "the pauses must restart from the shortest"


async def test_the_last_answer_stands_in_for_a_silent_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, clock = Answers(monkeypatch), ManualClock()
    of = Resolver(FEW, clock.monotonic)
    await of.addresses("push.example")
    answers.answer = lambda host: resolver._Outcome(reason="Temporary failure in name resolution")
    assert [*await of.addresses("push.example")] == ["192.0.2.1"]
    clock.advance(KEEP_S)
    assert "Temporary failure" in await failure(of, "push.example")
    answers.answer = lambda host: resolver._Outcome(["192.0.2.3"])
    clock.advance(60)
    await of.addresses("push.example")
    answers.answer = lambda host: resolver._Outcome(reason="no such name", is_final=True)
    assert "no such name" in await failure(of, "push.example"), "a final answer must replace the cached one"


async def test_the_last_answer_is_used_where_there_is_no_room(names: SilentNames) -> None:
    of = Resolver(SLOW)
    await of.addresses("localhost", "t1")
    waiting = begun(of, [f"x.silent{number}.test" for number in range(3)])
    await until(lambda: names.under_way == 3)
    async with asyncio.timeout(10):
        assert [*await of.addresses("localhost", "t1")] != []
    await ended(waiting)


async def test_an_invalid_host_name_is_reported_as_unresolved() -> None:
    of = Resolver(STRANGERS)
    for host in ("a" * 64 + ".example", "nobody.invalid"):
        assert "could not be resolved" in await failure(of, host)


async def test_memory_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "MOST_NAMES", 3)
    answers = Answers(monkeypatch)
    of = Resolver(STRANGERS)
    for number in range(10):
        await of.addresses(f"x{number}.example")
    answers.answer = lambda host: resolver._Outcome(reason="no")
    for number in range(10, 20):
        await failure(of, f"x{number}.example")
    assert [*of._known] == ["x7.example", "x8.example", "x9.example"]
    assert [*of._failed] == ["x17.example", "x18.example", "x19.example"]


def test_a_blocked_look_up_holds_up_no_end(names: SilentNames) -> None:
    async def main() -> None:
        of = Resolver(FEW)
        assert "did not answer" in await failure(of, "x.evil.test")

    asyncio.run(main())
    assert names.under_way == 1
    names.release()  # the loop is closed, so the result is dropped without an error
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "greendot-resolver"] in ([True], [])


async def test_a_thread_that_cannot_be_started_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    of = Resolver(STRANGERS)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert "no thread could be started" in await failure(of, "a.example")
    assert of.under_way == 0


def test_permanent_and_temporary_failures_of_a_name_are_distinguished() -> None:
    assert socket.EAI_NONAME in resolver.FINAL
    assert socket.EAI_AGAIN not in resolver.FINAL
    assert [resolver._domain(host) for host in ("a.b.example.org.", "example", "x.y")] == [
        "example.org",
        "example",
        "x.y",
    ]
