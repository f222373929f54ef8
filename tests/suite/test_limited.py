"""Time limit of tests: a test that hangs is ended, in every way of waiting."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

import limited


class GaveUp(BaseException):
    pass


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "AGAIN_S", 0.01)
    monkeypatch.setattr(limited, "CLOSED_S", 0.05)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def give_up(report: str) -> None:
    raise GaveUp(report)


def test_a_coroutine_that_waits_for_ever_is_ended_and_named() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match="waits_for_ever"):
        limited.run(waits_for_ever, 0.01, give_up)


def test_a_coroutine_that_swallows_a_cancellation_is_cancelled_again() -> None:
    async def swallows_one() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match="swallows_one"):
        limited.run(swallows_one, 0.01, give_up)


def test_a_coroutine_that_swallows_every_cancellation_is_given_up() -> None:
    is_over = False

    async def swallows_all() -> None:
        while not is_over:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass

    def give_up(report: str) -> None:
        nonlocal is_over
        is_over = True
        raise GaveUp(report)

    with pytest.raises(GaveUp, match="swallows_all"):
        limited.run(swallows_all, 0.01, give_up)


def test_a_thread_that_is_left_is_given_up(released: threading.Event) -> None:
    reports: list[str] = []

    async def leaves_a_thread() -> None:
        asyncio.get_running_loop().run_in_executor(None, released.wait)

    def give_up(report: str) -> None:
        reports.append(report)
        released.set()

    limited.run(leaves_a_thread, 10.0, give_up)
    assert len(reports) == 1


def test_a_connection_that_is_left_open_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        async def connects() -> None:
            await asyncio.get_running_loop().create_connection(asyncio.Protocol, *server.getsockname())

        with pytest.raises(AssertionError, match=r"left open: .*TCPTransport"):
            limited.run(connects, 10.0, give_up)


def test_an_error_of_the_coroutine_is_raised_as_it_is() -> None:
    async def fails() -> None:
        raise ValueError("of the test")

    with pytest.raises(ValueError, match="of the test"):
        limited.run(fails, 10.0, give_up)
