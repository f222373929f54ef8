"""Port for push: devices of users, and the queue of pushes to them.

A push is queued in the transaction that writes its notification, for tenants that push. A worker claims pushes for the
time of a lease. When the lease ends they are due again, so a process that dies loses none. A worker that no longer
holds a push cannot settle it. The result of a push, per device and with its reason, is kept for a while for operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct

from greendot.ids import TEXT_RULE, valid_text
from greendot.push.policy_model import Importance

if TYPE_CHECKING:  # `port` imports this module
    from greendot.store.inbox import Notification

Provider = Literal["fcm", "apns", "webpush", "webhook"]
# Provider whose tokens are names that the app chooses per user. Tokens of other providers identify an installation.
NAMED: Provider = "webhook"
PushOutcome = Literal["sent", "failed", "gone", "refused"]  # failed: retried; refused: not retried


MOST_TOKEN = 4_096  # characters; a token of FCM has 200, a browser's subscription 500


def check_size(provider: Provider, token: str) -> None:
    """Raise ValueError, with the expected form, if the token breaks the rules common to all providers."""
    if not token or len(token) > MOST_TOKEN:
        raise ValueError(f"a token has 1 to {MOST_TOKEN} characters")
    if not valid_text(token):
        raise ValueError(f"a token has {TEXT_RULE}")


class Device(NamedTuple):
    """Device that receives pushes for a user, with its token at the provider."""

    tenant: str
    user: str
    device: str
    provider: Provider
    token: str
    created_at: int
    used_at: int  # last registration or push


class Choices(Struct, frozen=True):
    """Quiet hours of a user: minutes since midnight in the user's time zone. Equal bounds: no quiet hours."""

    zone: str = "UTC"
    quiet_begins: int = 0
    quiet_ends: int = 0


class PushResult(Struct, frozen=True, omit_defaults=True):
    """Result of a push for one device."""

    device: str
    provider: Provider
    outcome: PushOutcome
    at: int
    attempts: int = 1
    reason: str = ""


class Push(Struct, frozen=True):
    """Claimed push of one notification. `notification` is None if it was removed in the meantime."""

    id: int
    tenant: str
    user: str
    seq: int
    importance: Importance
    room: str | None
    collapse: str | None
    created_at: int
    attempts: int
    results: list[PushResult]  # of the devices tried so far
    notification: Notification | None = None
    devices: list[Device] = []
    choices: Choices = Choices()
    recent: list[int] = []  # times of the user's pushes after the `since` of the claim


class Settled(Struct, frozen=True):
    """Outcome of a claimed push."""

    id: int
    reason: str
    due_at: int | None = None  # next check of the push; None: it is over
    results: list[PushResult] = []  # of all devices tried so far
    tried: bool = False  # whether this claim made an attempt
    sent: list[str] = []  # devices reached by this attempt
    is_dead: bool = False  # whether sending failed for good, a case for operators


class PushRecord(Struct, frozen=True):
    """Push as shown to operators."""

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
    """Counts of the push queue."""

    waiting: int
    due: int
    oldest_due_at: int | None
    dead: int


class PushStore(Protocol):
    """Port for devices, quiet hours and the push queue."""

    async def put_device(self, device: Device) -> bool:
        """Register the device, replacing an earlier registration; return whether it is new or has another token.

        A token belongs to one device. Another user's device with the same token is removed: the phone changed hands.
        Tokens of the provider `NAMED` are compared within a user only, because another user can guess them.
        """
        ...

    async def devices(self, tenant: str, user: str) -> list[Device]:
        """Return the user's devices, ordered by name."""
        ...

    async def drop_device(self, tenant: str, user: str, device: str) -> bool:
        """Remove the device; return whether it existed."""
        ...

    async def drop_unused_devices(self, before: int, limit: int) -> int:
        """Remove at most `limit` devices last used before `before`; return how many."""
        ...

    async def put_choices(self, tenant: str, user: str, choices: Choices) -> None: ...

    async def choices(self, tenant: str, user: str) -> Choices: ...

    async def claim_pushes(
        self, holder: str, now: int, lease_ms: int, limit: int, *, since: int, held: Mapping[str, int] | None = None
    ) -> list[Push]:
        """Claim at most `limit` due pushes for the time of the lease. No two holders get the same push.

        Tenants get equal shares, and each tenant's longest due pushes come first. `held`, the pushes that the holder
        still has of each tenant, bounds the shares further: see `greendot.push.policy_model`. `since` bounds
        `Push.recent`.
        """
        ...

    async def settle_pushes(
        self, holder: str, settled: Sequence[Settled], gone: Sequence[Device], now: int
    ) -> set[int]:
        """Write the outcomes in one commit; return the ids of the pushes that were still held.

        Pushes that another holder has claimed meanwhile are not changed. Devices that were sent to get a new `used_at`.
        Devices in `gone` are removed unless their token has changed. Notifications get the time of their first push.
        """
        ...

    async def recheck_pushes(self, tenant: str, user: str, now: int) -> bool:
        """Make the user's pushes with the reason `busy` due; return whether there are pushes to check.

        A push that a worker holds is due again as soon as the worker settles it with this reason: the worker may have
        read the status before it changed.
        """
        ...

    async def push_of(self, tenant: str, notification: str) -> list[PushRecord]:
        """Return the pushes of the notification with this id."""
        ...

    async def push_counts(self, now: int) -> PushCounts:
        """Count the queue. Slow: call it rarely, for operators and metrics."""
        ...

    async def dead_pushes(self, tenant: str | None, limit: int) -> list[PushRecord]:
        """Return the oldest dead pushes, of one tenant or of all."""
        ...

    async def replay_pushes(self, tenant: str | None, ids: Sequence[int] | None, now: int) -> list[int]:
        """Queue dead pushes again, all if `ids` is None; return the ids found.

        Only devices that did not get the push are tried.
        """
        ...

    async def prune_pushes(self, before: int, limit: int) -> int:
        """Remove at most `limit` pushes that were over before `before`; return how many."""
        ...
