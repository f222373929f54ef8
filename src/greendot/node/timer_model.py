"""Timing wheel: one per process, for every timer.

Timers are kept in slots of equal width, so setting and cancelling one costs the same with ten timers as with a million.
Due times are exact: a slot that is only partly over returns only the timers that are due.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

# A sum of floats may differ from the exact time by less than this. A timer must not fire later for that reason.
_SLACK = 1e-6


def has_come(date: float, now: float) -> bool:
    """Return whether `date`, for which a timer was set, has come.

    A timer may fire early by a tolerance, and so the same tolerance applies here. Otherwise the code that a timer calls
    at `date` would find that `date` has not come, and would set the timer again without delay.
    """
    return date <= now + 2 * _SLACK


class Timer:
    """Call to make once, unless cancelled by `Wheel.cancel`."""

    __slots__ = ("argument", "call", "due")

    def __init__(self, due: float, call: Callable[[Any], None], argument: Any) -> None:
        self.due = due
        self.call = call
        self.argument = argument

    def fire(self) -> None:
        argument, self.argument = self.argument, None  # a fired timer may be referenced, but must not keep its argument
        self.call(argument)


def _nothing(argument: Any) -> None:
    pass


class Wheel:
    """Timers in slots. `advance` takes out the due ones, earliest first."""

    __slots__ = ("_numbers", "_slots", "_width")

    def __init__(self, width_s: float = 0.05) -> None:
        self._width = width_s
        self._slots: dict[int, dict[Timer, None]] = {}
        self._numbers: list[int] = []  # heap of slots in use; may contain emptied slots

    def set(self, due: float, call: Callable[[Any], None], argument: Any = None) -> Timer:
        timer = Timer(due, call, argument)
        number = int(due / self._width)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
            heapq.heappush(self._numbers, number)
        slot[timer] = None
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Cancel a timer. No effect on None, or on a timer that has fired or was cancelled."""
        if timer is None:
            return
        timer.call = _nothing  # `advance` may have returned the timer already, behind the one whose call cancels it
        timer.argument = None  # the argument often refers to the timer: a cycle that waits for the garbage collector
        number = int(timer.due / self._width)
        slot = self._slots.get(number)
        if slot is not None and slot.pop(timer, timer) is None and not slot:
            del self._slots[number]
            if len(self._numbers) > 2 * len(self._slots) + 64:  # mostly emptied slots: drop them
                self._numbers = [*self._slots]
                heapq.heapify(self._numbers)

    def next_due(self) -> float | None:
        """Return the due time of the earliest timer; None if there is none."""
        while self._numbers:
            slot = self._slots.get(self._numbers[0])
            if slot:
                return min(timer.due for timer in slot)
            heapq.heappop(self._numbers)
        return None

    def advance(self, now: float) -> list[Timer]:
        """Take out and return every timer due at `now`, in the order of due times."""
        due: list[Timer] = []
        now += _SLACK
        last = int(now / self._width)
        while self._numbers and self._numbers[0] <= last:
            number = self._numbers[0]
            slot = self._slots.get(number)
            if slot is None:
                heapq.heappop(self._numbers)
                continue
            ripe = [*slot] if number < last else [timer for timer in slot if timer.due <= now]
            if len(ripe) == len(slot):
                del self._slots[heapq.heappop(self._numbers)]
            else:
                for timer in ripe:
                    del slot[timer]
            due += ripe
            if number == last:
                break
        due.sort(key=lambda timer: timer.due)
        return due

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))
