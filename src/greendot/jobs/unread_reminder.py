"""Job `unread-reminder`: reminds users who are away of notifications unread for long.

A user is reminded once, and again when the last reminder is long ago.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from greendot.engine.port import PresenceEngine
from greendot.jobs.job import RunningJob
from greendot.store.inbox import Notice
from greendot.store.jobs import REMINDER, JobStore, Unread

AT_ONCE = 500  # users read together, the most in memory at any time
BEYOND = "~"  # sorts after every user id
PLACE = "{unread}"  # placeholder of the count in the text

Notify = Callable[[Sequence[Notice]], Awaitable[object]]


class Reminding(Struct, frozen=True):
    """Settings of the job."""

    pushes: Callable[[str], bool]  # whether a tenant pushes
    after_ms: int = 7_200_000  # least age of an unread notification, and least time between two reminders
    text: str = ""


class _Body(Struct, omit_defaults=True):
    """Body of a reminder, for the app to display."""

    unread: int
    since: int
    text: str = ""


class UnreadReminder:
    """Job that writes reminders. A reminder is a normal notification and pushed as one; the next one replaces it."""

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
                user = BEYOND  # skip the other users of the tenant
            await run.step(len(page), f"{tenant}/{user}")
        return f"{reminded} of {run.done} users reminded"

    async def _remind(self, users: Sequence[Unread], now: int) -> int:
        """Remind the users of one tenant who are due and away; return how many.

        `now` is the start of the run. The next run begins an interval later, and then every user reminded now is due
        again.
        """
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
            # The user's own state counts: an invisible user may be online. Stale users are left to the next run.
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
            # A run interrupted before `put_reminded` writes the reminder again with this key: it is stored once.
            key=f"{REMINDER}.{one.reminded_at or 0}",
            created_at=now,
            expires_at=now + self._reminding.after_ms,
            collapse=REMINDER,
        )
