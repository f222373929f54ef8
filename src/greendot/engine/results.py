"""What engines answer, and are told of a session."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal, NamedTuple

from msgspec import Struct

from greendot.presence.model import ManualStatus


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
    manual: ManualStatus


class Adopted(NamedTuple):
    """A session that was taken over from another node."""

    incarnation: str  # that held it
    idle: bool


class EngineSession(NamedTuple):
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


ORDERED = 1_000  # users online: a tenant with no more of them is paged by id
CURSOR = "~[0-9a-f]{4}(?:~[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127})?"  # a bucket, and a user in it; no user is called so


class Page(NamedTuple):
    """A part of the users online, by id."""

    users: list[str]
    next: str | None  # pass as `after` for the next page; None at the end
    total: int  # all users online, as last counted
    work: int = 0  # users and buckets looked at for it: what it is to be charged with


def most_by_id(after: str | None) -> int:
    """Return up to how many users online a page is by id: more for further pages, as the tenant may have grown."""
    if after is None:
        return ORDERED
    return -1 if after.startswith("~") else 2 * ORDERED


def page_by_id(users: Collection[str], after: str | None, limit: int, work: int) -> Page:
    """Return a page of all users online, by id."""
    behind = sorted(user for user in users if after is None or user > after)
    page = behind[:limit]
    return Page(page, page[-1] if len(behind) > limit else None, len(users), work)


def cursor(bucket: int, user: str = "") -> str:
    """Return what to pass as `after` to begin with a bucket, or behind a user in it."""
    return f"~{bucket:04x}~{user}" if user else f"~{bucket:04x}"


def read_cursor(after: str, bucket_of: Callable[[str], int]) -> tuple[int, str]:
    """Return the bucket a page begins with, and the user in it whom it begins after ("" for the whole bucket)."""
    if not after.startswith("~"):
        return bucket_of(after), after
    bucket, _, user = after[1:].partition("~")
    return int(bucket, 16), user
