"""The part of the store port for push: users' devices, and what is to be pushed to them.

A push is queued in the transaction that writes its notification, for tenants that push. Who claims some holds them for
a lease: they are due again when it ends, so nothing is lost with a process that dies. Settling is refused to who does
not hold them any more. What came of a push, for each device and why, is kept for a while: operators ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct

from greendot.ids import TEXT_RULE, valid_text
from greendot.push.policy_model import Importance

if TYPE_CHECKING:  # the whole port includes this part of it
    from greendot.store.inbox import Notification

Provider = Literal["fcm", "apns", "webpush", "webhook"]
NAMED: Provider = "webhook"  # its tokens are names that an app chooses: a user's own. Others name an app installation.
PushOutcome = Literal["sent", "failed", "gone", "refused"]  # failed: it is tried again; refused: it is not


MOST_TOKEN = 4_096  # characters; FCM's are 200, a browser's subscription 500


def check_size(provider: Provider, token: str) -> None:
    """ValueError, which says what is expected: what holds for the tokens of all providers."""
    if not token or len(token) > MOST_TOKEN:
        raise ValueError(f"a token has 1 to {MOST_TOKEN} characters")
    if not valid_text(token):
        raise ValueError(f"a token has {TEXT_RULE}")


class Device(NamedTuple):
    """Where a user can be reached: what the provider calls it, and when that was last good for something."""

    tenant: str
    user: str
    device: str
    provider: Provider
    token: str
    created_at: int
    used_at: int  # registered, or pushed to


class Choices(Struct, frozen=True):
    """What a user chose: quiet hours, as minutes since midnight of their own time zone. Equal: none."""

    zone: str = "UTC"
    quiet_begins: int = 0
    quiet_ends: int = 0


class PushResult(Struct, frozen=True, omit_defaults=True):
    """How it went with one device."""

    device: str
    provider: Provider
    outcome: PushOutcome
    at: int
    attempts: int = 1
    reason: str = ""


class Push(Struct, frozen=True):
    """One notification that is to be pushed. Without `notification`: that was removed meanwhile."""

    id: int
    tenant: str
    user: str
    seq: int
    importance: Importance
    room: str | None
    collapse: str | None
    created_at: int
    attempts: int
    results: list[PushResult]  # of the devices that were tried
    notification: Notification | None = None
    devices: list[Device] = []
    choices: Choices = Choices()
    recent: list[int] = []  # when the user's pushes since the given time were made


class Settled(Struct, frozen=True):
    """What became of a push that was claimed."""

    id: int
    reason: str
    due_at: int | None = None  # when it is asked about again; None: it is over
    results: list[PushResult] = []  # of all devices that were ever tried
    tried: bool = False  # now
    sent: list[str] = []  # devices, now
    is_dead: bool = False  # it could not be sent, and operators should know


class PushRecord(Struct, frozen=True):
    """A push as operators see it."""

    id: int
    tenant: str
    user: str
    seq: int
    notification: str  # its id
    importance: Importance
    created_at: int
    due_at: int | None
    over_at: int | None
    is_dead: bool
    attempts: int
    reason: str
    results: list[PushResult]


class PushCounts(NamedTuple):
    """How full the queue is."""

    waiting: int
    due: int
    oldest_due_at: int | None
    dead: int


class PushStore(Protocol):
    """Devices, what their users chose, and the queue."""

    async def put_device(self, device: Device) -> bool:
        """Register the device in place of what it was before; True if it is new or has another token.

        A token belongs to one device. Another user's device with the same token is removed: the phone changed hands.
        Tokens of the provider `NAMED` are compared within a user only, because another user can guess them.
        """
        ...

    async def devices(self, tenant: str, user: str) -> list[Device]:
        """By their names."""
        ...

    async def drop_device(self, tenant: str, user: str, device: str) -> bool:
        """Whether it was there."""
        ...

    async def drop_unused_devices(self, before: int, limit: int) -> int:
        """Remove at most `limit` that were last used before this. Answers how many."""
        ...

    async def put_choices(self, tenant: str, user: str, choices: Choices) -> None: ...

    async def choices(self, tenant: str, user: str) -> Choices: ...

    async def claim_pushes(
        self, holder: str, now: int, lease_ms: int, limit: int, *, since: int, held: Mapping[str, int] | None = None
    ) -> list[Push]:
        """Hold at most `limit` that are due until the lease ends. No two holders have the same.

        Tenants get equal shares, and the longest due of each comes first. `held`, the pushes that the holder still
        has of each tenant, bounds those shares further: see `greendot.push.policy_model`.
        """
        ...

    async def settle_pushes(
        self, holder: str, settled: Sequence[Settled], gone: Sequence[Device], now: int
    ) -> set[int]:
        """Note what became of them, in one commit. Devices that were sent to are in use, those that are `gone` are
        removed unless they have another token now, and notifications know when they were first pushed. Answers those
        that were still held; the others' are another's by now."""
        ...

    async def push_of(self, tenant: str, notification: str) -> list[PushRecord]:
        """What became of the notification with this id."""
        ...

    async def push_counts(self, now: int) -> PushCounts:
        """It counts: for operators and metrics, not often."""
        ...

    async def dead_pushes(self, tenant: str | None, limit: int) -> list[PushRecord]:
        """The oldest, of one tenant or of all."""
        ...

    async def replay_pushes(self, tenant: str | None, ids: Sequence[int] | None, now: int) -> list[int]:
        """Try dead ones again, all if None: those devices that did not get it. Answers which there were."""
        ...

    async def prune_pushes(self, before: int, limit: int) -> int:
        """Forget at most `limit` that were over before this. Answers how many."""
        ...
