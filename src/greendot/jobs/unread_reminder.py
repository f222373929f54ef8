"""`unread-reminder`: who is away and has something unread for long is told once, and again when that is long ago."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from greendot.engine.port import PresenceEngine
from greendot.jobs.job import RunningJob
from greendot.store.inbox import Notice
from greendot.store.jobs import REMINDER, JobStore, Unread

AT_ONCE = 500  # users looked at together: all that is in memory at any time
BEYOND = "~"  # comes behind every name
PLACE = "{unread}"  # in the text, where the count goes

Notify = Callable[[Sequence[Notice]], Awaitable[object]]


class Reminding(Struct, frozen=True):
    """From the settings."""

    pushes: Callable[[str], bool]  # whether a tenant does
    after_ms: int = 7_200_000  # unread for so long, and not reminded for so long
    text: str = ""


class _Body(Struct, omit_defaults=True):
    """What apps get to show."""

    unread: int
    since: int
    text: str = ""


class UnreadReminder:
    """A reminder is a notification like any other, and pushed like any other. The next one takes its place."""

    name = "unread-reminder"

    def __init__(self, store: JobStore, engine: PresenceEngine, notify: Notify, reminding: Reminding) -> None:
        self._store = store
        self._engine = engine
        self._notify = notify
        self._reminding = reminding

    async def work(self, run: RunningJob) -> str:
        reminded = 0
        tenant, _, user = (run.cursor or "").partition("/")
        while page := await self._store.unread_users((tenant, user), AT_ONCE):
            for pushing in sorted({one.tenant for one in page}):
                if self._reminding.pushes(pushing):
                    reminded += await self._remind([one for one in page if one.tenant == pushing], run.started_at)
            tenant, user = page[-1][:2]
            if not self._reminding.pushes(tenant):
                user = BEYOND  # its other users need not be looked at
            await run.step(len(page), f"{tenant}/{user}")
        return f"{reminded} of {run.done} users reminded"

    async def _remind(self, users: Sequence[Unread], now: int) -> int:
        """Of one tenant. `now` is when the run began: the next begins an interval later, and then
        everybody is due again whom this one reminds."""
        latest = now - self._reminding.after_ms
        due = [
            one
            for one in users
            if one.oldest_at is not None
            and one.oldest_at <= latest
            and (one.reminded_at is None or one.reminded_at <= latest)
        ]
        if due:
            seen = await self._engine.read(due[0].tenant, [one.user for one in due])
            # How they are really: who hides from others is not away, and who is not known is looked at next time.
            known = ((one, snapshot.own.state) for one, snapshot in zip(due, seen, strict=True) if not snapshot.stale)
            due = [one for one, state in known if state in ("offline", "idle")]
        if due:
            await self._notify([self._notice(one, now) for one in due])
            await self._store.put_reminded([one[:2] for one in due], now)
        return len(due)

    def _notice(self, one: Unread, now: int) -> Notice:
        text = self._reminding.text.replace(PLACE, str(one.unread))
        return Notice(
            one.tenant,
            one.user,
            REMINDER,
            msgspec.json.encode(_Body(one.unread, one.oldest_at or 0, text)),
            # Cut short before it is noted, it is written again under the same key: once.
            key=f"{REMINDER}.{one.reminded_at or 0}",
            created_at=now,
            expires_at=now + self._reminding.after_ms,
            collapse=REMINDER,
        )
