"""Results of engine verbs (see `engine.port`), and a node's knowledge of a session."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal, NamedTuple

from msgspec import Struct

from greendot.presence.model import ManualStatus


class Touched(Struct, frozen=True, gc=False):
    """Result of `touch`."""

    status_known: bool  # False: the user is invisible until `set_status` is called
    resumed: bool  # whether the session existed before


class Known(Struct, frozen=True):
    """Data of a session on its node, for restoring the session after a loss."""

    device: str
    idle: bool
    name: str | None
    age_ms: int  # time since the session became idle, or active
    manual: ManualStatus
    # After a loss: time since the node found it. States that are older get a new version. None: no data was lost.
    lost_ms: int | None = None


class Adopted(NamedTuple):
    """Session that was taken over from another node."""

    incarnation: str  # the incarnation that held the session
    idle: bool


class EngineSession(NamedTuple):
    """Session as the engine knows it."""

    session: str
    device: str
    node: str
    state: Literal["online", "idle"]
    ends_in_ms: int | None  # None unless the session lingers


class OccupantPage(NamedTuple):
    """Page of a room's occupants, sorted by id."""

    users: list[str]
    total: int  # number of all occupants
    is_there: bool = False  # whether the user who was looked for is an occupant


class NodeInfo(NamedTuple):
    """Incarnation of a node as the engine knows it."""

    node: str
    state: Literal["live", "dead"]
    renewed_at: int | None  # last renewal, ms UTC
    ends_at: int | None  # end of the sessions of a dead node; None while it lives
    level: str = "normal"  # overload level: normal, shedding or refusing


class Swept(NamedTuple):
    """Result of a sweep."""

    sessions: int = 0  # sessions that were ended, because they no longer count as online
    users: int = 0  # users who went offline
    forgotten: int = 0  # deleted last-seen entries
    nodes: int = 0  # deleted entries of dead nodes


ORDERED = 1_000  # users online up to which a tenant's pages are sorted by id
CURSOR = "~[0-9a-f]{4}(?:~[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127})?"  # a bucket, and a user in it; no user id matches


class Page(NamedTuple):
    """Page of users online, sorted by id."""

    users: list[str]
    next: str | None  # `after` of the next page; None at the end
    total: int  # number of users online, as last counted
    work: int = 0  # users and buckets read for the page: its cost


def most_by_id(after: str | None) -> int:
    """Return the number of users online up to which a page is sorted by id; -1 if `after` is a cursor.

    Further pages allow more users than the first, as the tenant may have grown.
    """
    if after is None:
        return ORDERED
    return -1 if after.startswith("~") else 2 * ORDERED


def page_by_id(users: Collection[str], after: str | None, limit: int, work: int) -> Page:
    """Return a page of all users online, sorted by id."""
    behind = sorted(user for user in users if after is None or user > after)
    page = behind[:limit]
    return Page(page, page[-1] if len(behind) > limit else None, len(users), work)


def cursor(bucket: int, user: str = "") -> str:
    """Return the `after` value to begin with a bucket, or after a user in the bucket."""
    return f"~{bucket:04x}~{user}" if user else f"~{bucket:04x}"


def read_cursor(after: str, bucket_of: Callable[[str], int]) -> tuple[int, str]:
    """Return the first bucket of a page, and the user in it to continue after ("" for the whole bucket)."""
    if not after.startswith("~"):
        return bucket_of(after), after
    bucket, _, user = after[1:].partition("~")
    return int(bucket, 16), user
