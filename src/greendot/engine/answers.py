"""What engines answer, and are told of a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import Struct

from greendot.core.presence import Manual


class Touched(NamedTuple):
    """What `touch` found."""

    status_known: bool  # False: the user is shown to nobody until `set_status` is called
    resumed: bool  # whether the session was there before


class Known(Struct, frozen=True):
    """What a node knows of a session it holds, to be restored where it was lost."""

    device: str
    idle: bool
    name: str | None
    age_ms: int  # how long the session has been idle, or not idle
    manual: Manual


class Adopted(NamedTuple):
    """A session that was taken over from another node."""

    incarnation: str  # that held it
    idle: bool


class SeatInfo(NamedTuple):
    """A session as the engine knows it."""

    session: str
    device: str
    node: str
    state: Literal["online", "idle"]
    ends_in_ms: int | None  # of one that lingers


class NodeInfo(NamedTuple):
    """A node's life as the engine knows it."""

    node: str
    state: Literal["live", "dead"]
    renewed_at: int | None  # ms UTC of its last renewal
    ends_at: int | None  # of a dead one: when its sessions stop counting
    level: str = "normal"  # how loaded it is: normal, shedding or refusing


class Swept(NamedTuple):
    """What a sweep repaired."""

    sessions: int = 0  # that no longer counted
    users: int = 0  # that are offline for it
    forgotten: int = 0  # last-seens past their time
    nodes: int = 0  # dead nodes struck off


CURSOR = "~[0-9a-f]{4}"  # the beginning of a bucket; no user is called so


class Page(NamedTuple):
    """A part of the users online, by id."""

    users: list[str]
    next: str | None  # pass as `after` for the next page; None at the end
    total: int  # all users online, as last counted
    work: int = 0  # users and buckets looked at for it: what it is to be charged with


def cursor(bucket: int) -> str:
    """Return what to pass as `after` to begin with a bucket."""
    return f"~{bucket:04x}"


def read_cursor(after: str, bucket_of: Callable[[str], int]) -> tuple[int, str]:
    """Return the bucket a page begins with, and the user in it whom it begins after ("" for the whole bucket)."""
    return (int(after[1:], 16), "") if after.startswith("~") else (bucket_of(after), after)
