"""Writes of the same bytes to many sockets: the functions in Python and in C do the same."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from greendot.transport.fan_out import FAILED, Incomplete, send_each, send_each_in_python

SendEach = Callable[[list[int], bytes], Incomplete]
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["python", "c"])
def each(request: pytest.FixtureRequest) -> SendEach:
    if request.param == "python":
        return send_each_in_python
    speedups = pytest.importorskip(
        "greendot_speedups", reason="greendot-speedups is not installed (make test installs)"
    )
    found: SendEach = speedups.send_each
    return found


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made = [socket.socketpair() for _ in range(600)]
    for ours, theirs in made:
        ours.setblocking(False)
        theirs.setblocking(False)
    yield made
    for ours, theirs in made:
        ours.close()
        theirs.close()


def numbers(pairs: list[Pair]) -> list[int]:
    return [ours.fileno() for ours, _ in pairs]


def fill(pair: Pair) -> None:
    """Write until the socket takes nothing more."""
    with suppress(BlockingIOError):
        while True:
            pair[0].send(b"x" * 65_536)


def test_every_socket_gets_the_bytes_once(each: SendEach, pairs: list[Pair]) -> None:
    assert each(numbers(pairs), b"hello") is None
    assert {theirs.recv(100) for _, theirs in pairs} == {b"hello"}


def test_without_sockets_nothing_is_written(each: SendEach) -> None:
    assert each([], b"hello") is None


def test_a_full_socket_is_reported_with_no_bytes_and_the_others_get_all(each: SendEach, pairs: list[Pair]) -> None:
    fill(pairs[300])
    assert each(numbers(pairs), b"hello") == [(300, 0)]
    assert {theirs.recv(100) for _, theirs in pairs[:300] + pairs[301:]} == {b"hello"}


def test_a_partial_write_is_reported_with_its_bytes(each: SendEach, pairs: list[Pair]) -> None:
    large = bytes(4_000_000)
    found = each(numbers(pairs[:2]), large)
    assert found is not None
    assert [index for index, _ in found] == [0, 1]
    for (_, sent), (_, theirs) in zip(found, pairs, strict=False):
        assert 0 < sent < len(large)
        taken = 0
        with suppress(BlockingIOError):
            while True:
                taken += len(theirs.recv(1_000_000))
        assert taken == sent


def test_a_broken_socket_is_reported_as_failed_and_the_others_get_all(each: SendEach, pairs: list[Pair]) -> None:
    pairs[0][1].close()  # EPIPE, without a signal
    given = [*numbers(pairs[:2]), -1]
    assert each(given, b"hello") == [(0, FAILED), (2, FAILED)]
    assert pairs[1][1].recv(100) == b"hello"


def test_the_function_in_c_is_used_if_it_is_installed() -> None:
    speedups = pytest.importorskip(
        "greendot_speedups", reason="greendot-speedups is not installed (make test installs)"
    )
    assert send_each is speedups.send_each


@pytest.mark.parametrize("wrong", [((1,), b"x"), ([1], "x"), ([1], bytearray(b"x")), (["1"], b"x"), ([1 << 80], b"x")])
def test_the_function_in_c_refuses_other_types(wrong: tuple[object, object]) -> None:
    speedups = pytest.importorskip(
        "greendot_speedups", reason="greendot-speedups is not installed (make test installs)"
    )
    with pytest.raises((TypeError, OverflowError)):
        speedups.send_each(*wrong)
