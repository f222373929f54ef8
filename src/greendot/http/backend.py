"""What the API stands on: the ports, and the little it needs of the node it runs in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from greendot.auth.api_keys import ApiKeys
from greendot.auth.model import Revocation
from greendot.auth.tokens import Tokens
from greendot.clock import Clock
from greendot.engine.port import Engine, Topic
from greendot.presence.model import ManualStatus, Snapshot
from greendot.protocol.replies import PresentReply, SessionInfo
from greendot.store.port import BusMode, Created, Draft, Key, Notice, Record, Role, Room, Store
from greendot.store.push import Device, Provider
from greendot.telemetry.prometheus import Sample

T = TypeVar("T")


class Slices(Protocol):
    """Loop time for large work: see `gateway.slices`."""

    async def turn(self) -> None: ...
    def cut(self, items: Sequence[T]) -> AsyncIterator[Sequence[T]]: ...


class Statuses(Protocol):
    """Manual statuses, as far as the API sets them."""

    async def set(self, key: tuple[str, str], manual: ManualStatus) -> Snapshot: ...


class Snapshots(Protocol):
    """Users as others see them."""

    def order(self, tenant: str, users: Sequence[str]) -> Sequence[int]: ...
    async def read(self, tenant: str, users: Sequence[str]) -> list[Snapshot]: ...


class Regarding(Protocol):
    """Who may see whom, as far as the API sets it."""

    async def put_contact(self, key: tuple[str, str], other: str, at: int) -> None: ...
    async def remove_contact(self, key: tuple[str, str], other: str) -> None: ...


class Speaking(Protocol):
    """What changes rooms."""

    async def append(self, tenant: str, room: str, draft: Draft) -> Record: ...
    async def put_room(self, tenant: str, room: str, open: bool | None, bus: BusMode | None) -> Room: ...
    async def put_member(self, tenant: str, room: str, user: str, role: Role) -> bool: ...
    async def remove_member(self, tenant: str, room: Room, user: str) -> None: ...


class Notifying(Protocol):
    """What is new in inboxes."""

    async def notify(self, notices: Sequence[Notice]) -> list[Created | None]: ...


class Rooms(Protocol):
    """Rooms, as far as the API reads who is there."""

    async def present(self, topic: Topic, reader: str | None, after: str | None, limit: int) -> PresentReply: ...


class Limiting(Protocol):
    """How much a tenant's app may say. Refused (`rate_limited`) if it is too much; then nothing was charged."""

    def app_message(self, tenant: str, room: str) -> None: ...
    def app_notifications(self, tenant: str, count: int) -> None: ...
    def app_signal(self, tenant: str, room: str | None) -> None: ...
    def app_query(self, tenant: str, users: int) -> None: ...
    def app_looked(self, tenant: str, users: int) -> None: ...
    def app_request(self, tenant: str | None, key: str) -> None: ...


class Targets(Protocol):
    """Whether those who would hear something can take it. Refused (`unavailable`, with a time to wait) if not."""

    async def check_room(self, tenant: str, room: str) -> None: ...
    async def check_users(self, tenant: str, users: Iterable[str]) -> None: ...


class Revoking(Protocol):
    """What ends tokens and sessions."""

    longest_ms: int

    def expires_at(self, before: int) -> int: ...
    async def revoke(self, revocation: Revocation, user: str | None = None) -> int: ...


class Devices(Protocol):
    """Where users are pushed to. Refused (`bad_field`) for what cannot be a token."""

    async def register(self, key: Key, device: str, provider: Provider, token: str) -> bool: ...
    async def remove(self, key: Key, device: str) -> bool: ...
    async def of(self, key: Key) -> list[Device]: ...


class NodeView(Protocol):
    """The node, as far as operators look at it."""

    draining: bool

    @property
    def incarnation(self) -> str: ...

    @property
    def overload(self) -> str | None: ...

    async def sessions_of(self, tenant: str, user: str) -> list[SessionInfo]: ...
    async def disconnect(self, session_id: str, code: int, reason: str, tenant: str) -> bool: ...
    def cut(self, session_id: str) -> bool: ...
    def stats(self) -> dict[str, Any]: ...
    def tenant_stats(self, tenant: str) -> dict[str, Any]: ...
    async def scrape(self) -> list[Sample]: ...


class Backend(Struct, frozen=True):
    """All the API works with."""

    engine: Engine
    store: Store
    clock: Clock
    keys: ApiKeys
    statuses: Statuses
    snapshots: Snapshots
    visibility_updates: Regarding
    rooms: Rooms
    room_messages: Speaking
    inbox_service: Notifying
    rate_limits: Limiting
    targets: Targets
    revocation_service: Revoking
    devices: Devices
    slices: Slices
    is_zone: Callable[[str], bool]  # whether a time zone is called so
    node: NodeView


class DevPeriods(Struct, frozen=True):
    """Seconds after which others see that somebody is gone, for a page that tells what happens."""

    heartbeat_s: float
    dead_after_s: float
    grace_s: float
    clean_grace_s: float
    silent_grace_s: float
    idle_s: float


class Dev(Struct, frozen=True):
    """What only a development server offers."""

    tokens: Tokens
    periods: DevPeriods
    token_ttl_s: float = 12 * 3600
