"""Surges of connecting clients: begin and end."""

from __future__ import annotations

from contextlib import ExitStack

from greendot.node.surge_detector import CHANCE, RATE, SurgeDetector
from greendot.testing.clock import ManualClock


class Coming:
    """Clients that are connecting."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.surge = SurgeDetector(self.clock)
        self.clients: list[ExitStack] = []

    def come(self, count: int, apart_s: float = 0.0) -> None:
        for _ in range(count):
            self.clock.advance(apart_s)
            client = ExitStack()
            client.enter_context(self.surge.one())
            self.clients.append(client)

    def arrive(self, count: int) -> None:
        """Let the last `count` clients finish connecting."""
        for _ in range(count):
            self.clients.pop().close()


def test_a_few_at_once_are_no_surge() -> None:
    coming = Coming()
    coming.come(CHANCE)
    assert not coming.surge.are_many
    coming.come(1)
    assert not coming.surge.are_many  # only one client arrived too fast


def test_two_that_came_too_fast_are_many_while_the_level_is_high() -> None:
    coming = Coming()
    coming.come(CHANCE + 2)
    assert coming.surge.are_many
    coming.clock.advance(2 / RATE)
    assert not coming.surge.are_many


def test_a_quiet_time_saves_nothing_up_for_a_crowd() -> None:
    coming = Coming()
    coming.clock.advance(3_600)
    coming.come(CHANCE + 2)
    assert coming.surge.are_many


def test_a_crowd_is_many_until_enough_of_it_are_in() -> None:
    coming = Coming()
    coming.come(2 * CHANCE)
    coming.clock.advance(60)
    assert coming.surge.are_many
    coming.arrive(1)
    assert not coming.surge.are_many


def test_clients_that_come_evenly_are_never_many_however_many_are_under_way() -> None:
    coming = Coming()
    coming.come(20 * CHANCE, apart_s=1 / RATE)
    assert not coming.surge.are_many


def test_a_crowd_of_any_size_is_forgotten_after_the_same_time() -> None:
    coming = Coming()
    coming.come(1_000)
    coming.arrive(1_000)
    coming.clock.advance(CHANCE / RATE)
    coming.come(2)
    assert coming.surge.are_many  # the level is still at CHANCE
    coming.arrive(2)
    coming.clock.advance(3 / RATE)
    coming.come(2)
    assert not coming.surge.are_many


def test_a_client_that_fails_on_its_way_is_counted_no_longer() -> None:
    coming = Coming()
    coming.come(2 * CHANCE - 1)
    coming.clock.advance(60)
    try:
        with coming.surge.one():
            raise KeyError
    except KeyError:
        pass
    coming.clock.advance(60)
    assert not coming.surge.are_many
