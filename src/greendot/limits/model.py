"""Token buckets by key: how much users, rooms and tenants may ask for.

A bucket is kept as one number, the time at which it will be full again. A full bucket is the same as none: so a key
that asks for nothing costs nothing, and no timer is needed to fill or to forget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import NamedTuple

ROOMY = 1_000  # up to so many buckets nobody looks for full ones
LOOKED_AT = 2  # old buckets, for each new one: what is forgotten keeps up with what comes
TINY_S = 1e-6  # sums of floats must not cost a token


class Buckets(dict[Hashable, float]):
    """When each bucket of one limit is full again, by its key."""

    __slots__ = ("_in_turn",)

    def __init__(self) -> None:
        super().__init__()
        self._in_turn: deque[Hashable] = deque()  # every key once, the one not looked at for longest first

    def begin(self, key: Hashable, full_at: float, now: float) -> None:
        """A key that has no bucket gets one, and some that are full lose theirs."""
        self[key] = full_at
        self._in_turn.append(key)
        if len(self) > ROOMY:
            for _ in range(LOOKED_AT):
                oldest = self._in_turn.popleft()
                if self[oldest] <= now:
                    del self[oldest]
                else:
                    self._in_turn.append(oldest)


# One limit: where its key is among those asked for, its buckets, in how many seconds a token comes back, and in how
# many an empty bucket is full. A plain tuple, and no other: it is unpacked for every command.
Rule = tuple[int, Buckets, float, float]


class Excess(NamedTuple):
    """Why something is not let through: the limit that has it wait longest."""

    at: int  # of the rule
    rate: int  # tokens a second
    wait_s: float


def make_rule(at: int, buckets: Buckets, rate: float, burst_s: float) -> Rule:
    """`rate` tokens a second, and as many as come in `burst_s` at once, but at least one."""
    return at, buckets, 1 / rate, max(burst_s, 1 / rate) + TINY_S


def ask(rules: Sequence[Rule], keys: Sequence[Hashable], amount: int, now: float) -> Excess | None:
    """Take `amount` tokens from the bucket of every rule, or from none and say why.

    More than a bucket can hold is let through when it is full. It then owes the rest, and the next one waits.
    """
    for at, buckets, gap_s, span_s in rules:
        key = keys[at]
        full_at = buckets.get(key)
        if full_at is None:
            buckets.begin(key, now + gap_s * amount, now)
        elif full_at <= now:
            buckets[key] = now + gap_s * amount
        elif full_at - now <= span_s - gap_s * amount:
            buckets[key] = full_at + gap_s * amount
        else:
            _give_back(rules, keys, amount, until=buckets)
            return _longest(rules, keys, amount, now)
    return None


def owe(rules: Sequence[Rule], keys: Sequence[Hashable], amount: int, now: float) -> None:
    """Take `amount` tokens though there may be fewer: what was done costs more than was asked for, and who asks next
    waits until it is paid."""
    for at, buckets, gap_s, _ in rules:
        key = keys[at]
        full_at = buckets.get(key)
        if full_at is None:
            buckets.begin(key, now + gap_s * amount, now)
        else:
            buckets[key] = max(full_at, now) + gap_s * amount


def _give_back(rules: Sequence[Rule], keys: Sequence[Hashable], amount: int, until: Buckets) -> None:
    """Nobody pays for what one refused: those asked before it get their tokens back."""
    for at, buckets, gap_s, _ in rules:
        if buckets is until:
            return
        buckets[keys[at]] -= gap_s * amount


def _longest(rules: Sequence[Rule], keys: Sequence[Hashable], amount: int, now: float) -> Excess:
    found = []
    for at, buckets, gap_s, span_s in rules:
        missing_s = buckets.get(keys[at], now) - now
        found.append(Excess(at, round(1 / gap_s), missing_s - max(0.0, span_s - gap_s * amount)))
    return max(found, key=lambda excess: excess.wait_s)
