"""What becomes of a webhook: what an answer means, when to try again, how much goes into one request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeVar

DeliveryOutcome = Literal["taken", "gone", "failed"]
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 900.0
MOST_BYTES = 1024 * 1024  # of one request, unless a single event has more
ALONE_AFTER = 3  # attempts: what failed so often together is tried one by one, so that the one to blame fails alone
GONE = 410  # the app says that nobody is there any more

T = TypeVar("T")


class Verdict(NamedTuple):
    """What an attempt came to."""

    outcome: DeliveryOutcome
    reason: str = ""
    wait_s: float = 0.0  # the app asked for so long at least


def verdict(status: int, retry_after: str | None) -> Verdict:
    """What an answer means. Redirects are not followed: the new place was never checked by the operator."""
    if 200 <= status < 300:
        return Verdict("taken")
    if status == GONE:
        return Verdict("gone", f"the app answered {GONE}")
    reason = f"the app answered {status}"
    if 300 <= status < 400:
        reason += ", and redirects are not followed"
    return Verdict("failed", reason, _seconds(retry_after))


def _seconds(text: str | None) -> float:
    """Of `Retry-After`; a date is as good as nothing. A wrong one must not silence a hook for a day."""
    text = (text or "").strip()
    if not (text.isascii() and text.isdecimal()):
        return 0.0
    return min(LONGEST_PAUSE_S, float(text[:9]))


def pause_s(failures: int, chance: float, wait_s: float = 0.0) -> float:
    """How long to wait after so many failures in a row: 1 s, doubled each time up to 15 min, half of it by lot
    (`chance`, 0 to 1), so that what failed together is not tried again together. At least `wait_s`."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(max(failures, 1) - 1, 20))
    return max(wait_s, longest * (0.5 + chance / 2))


def batches(items: Iterable[tuple[T, int]], most: int) -> Iterator[list[T]]:
    """The items, each with its size in bytes, in as many at once as one request may have."""
    batch, size = list[T](), 0
    for item, bytes_ in items:
        if batch and (len(batch) >= most or size + bytes_ > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += bytes_
    if batch:
        yield batch
