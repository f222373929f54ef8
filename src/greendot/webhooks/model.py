"""Rules of webhook delivery: meaning of a response, pauses before a retry, size of a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeVar

DeliveryOutcome = Literal["taken", "gone", "failed"]
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 900.0
MOST_BYTES = 1024 * 1024  # of one request, unless a single event has more
ALONE_AFTER = 3  # attempts in a batch; then events are sent one by one, so that only the faulty event fails
GONE = 410  # status with which an app stops its hook

T = TypeVar("T")


class Verdict(NamedTuple):
    """Result of an attempt."""

    outcome: DeliveryOutcome
    reason: str = ""
    wait_s: float = 0.0  # shortest pause that the app asked for


def verdict(status: int, retry_after: str | None) -> Verdict:
    """Judge a response. Redirects are not followed: the operator never checked the new URL."""
    if 200 <= status < 300:
        return Verdict("taken")
    if status == GONE:
        return Verdict("gone", f"the app responded with {GONE}")
    reason = f"the app responded with {status}"
    if 300 <= status < 400:
        reason += "; redirects are not followed"
    return Verdict("failed", reason, _seconds(retry_after))


def _seconds(text: str | None) -> float:
    """Return the seconds of `Retry-After`, or 0 for a date.

    At most `LONGEST_PAUSE_S`: a wrong value must not silence a hook for a day.
    """
    text = (text or "").strip()
    if not (text.isascii() and text.isdecimal()):
        return 0.0
    return min(LONGEST_PAUSE_S, float(text[:9]))


def pause_s(failures: int, chance: float, wait_s: float = 0.0) -> float:
    """Return the pause after `failures` failures in a row: 1 s, doubled each time up to 15 min, at least `wait_s`.

    Half of the pause is random (`chance`, 0 to 1), so that hooks that failed together are not retried together.
    """
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(max(failures, 1) - 1, 20))
    return max(wait_s, longest * (0.5 + chance / 2))


def batches(items: Iterable[tuple[T, int]], most: int) -> Iterator[list[T]]:
    """Split the items, each given with its size in bytes, into batches that fit into one request."""
    batch, size = list[T](), 0
    for item, bytes_ in items:
        if batch and (len(batch) >= most or size + bytes_ > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += bytes_
    if batch:
        yield batch
