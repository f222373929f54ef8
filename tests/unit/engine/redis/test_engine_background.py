"""Background tasks of the Redis engine, and their end."""

from __future__ import annotations

import inspect

from greendot.engine.redis.engine import BackgroundTasks


async def work(done: list[str]) -> None:
    done.append("begun")


async def test_work_that_was_cancelled_before_it_began_is_closed() -> None:
    tasks, done = BackgroundTasks(), list[str]()
    one = work(done)
    tasks.spawn("one", one)
    await tasks.cancel()
    assert (done, inspect.getcoroutinestate(one)) == ([], inspect.CORO_CLOSED)


async def test_work_that_comes_after_the_end_is_closed() -> None:
    tasks, done = BackgroundTasks(), list[str]()
    await tasks.cancel()
    late = work(done)
    tasks.spawn("late", late)
    await tasks.settled()
    assert (done, inspect.getcoroutinestate(late)) == ([], inspect.CORO_CLOSED)


async def test_work_of_a_running_name_does_not_begin_twice() -> None:
    tasks, done = BackgroundTasks(), list[str]()
    for _ in range(2):
        tasks.spawn("one", work(done))
    await tasks.settled()
    assert done == ["begun"]
