"""Work that seldom waits: it runs in the next turn, and becomes a task only when it waits."""

from __future__ import annotations

import asyncio

import pytest

from greendot.node.tasks import Tasks
from greendot.telemetry.traceparent import Trace, current, enter


async def test_brief_work_runs_in_the_next_turn_without_a_task() -> None:
    tasks, seen = Tasks(), list[object]()

    async def work() -> None:
        seen.append(asyncio.current_task())

    tasks.spawn_brief(work())
    tasks.spawn_brief(work())
    assert (seen, len(tasks)) == ([], 2)
    await asyncio.sleep(0)
    assert (seen, len(tasks)) == ([None, None], 0)


async def test_brief_work_that_waits_goes_on_as_a_task_to_its_end() -> None:
    tasks, seen = Tasks(), list[object]()
    first, second = (asyncio.get_running_loop().create_future() for _ in range(2))

    async def work() -> None:
        seen.append(await first)
        try:
            await second
        except ValueError as error:
            seen.append(error)
        await asyncio.sleep(0)
        seen.append(asyncio.current_task() is not None)

    tasks.spawn_brief(work())
    await asyncio.sleep(0)
    assert len(tasks) == 1
    first.set_result("first")
    wrong = ValueError()
    second.set_exception(wrong)
    await tasks.finish()
    assert (seen, len(tasks)) == (["first", wrong, True], 0)


async def test_a_failure_of_brief_work_is_logged_and_the_rest_runs(caplog: pytest.LogCaptureFixture) -> None:
    tasks, seen = Tasks(), list[str]()

    async def fail(*, late: bool) -> None:
        if late:
            await asyncio.sleep(0)
        raise RuntimeError("a fault")

    async def work() -> None:
        seen.append("ran")

    tasks.spawn_brief(fail(late=False))
    tasks.spawn_brief(fail(late=True))
    tasks.spawn_brief(work())
    await tasks.finish()
    assert seen == ["ran"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


async def test_cancelled_brief_work_gets_the_cancellation_where_it_waits_and_does_not_begin_later() -> None:
    tasks, seen = Tasks(), list[str]()

    async def waits() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def begins() -> None:
        seen.append("began")

    tasks.spawn_brief(waits())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks.spawn_brief(begins())
    await tasks.cancel()
    await asyncio.sleep(0)
    assert (seen, len(tasks)) == (["cancelled"], 0)


async def test_brief_work_belongs_to_no_trace() -> None:
    tasks, seen = Tasks(), list[Trace | None]()

    async def work() -> None:
        seen.append(current())

    enter(Trace("1" * 32, "2" * 16))
    tasks.spawn_brief(work())
    await asyncio.sleep(0)
    assert seen == [None]
