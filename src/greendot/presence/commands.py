"""Handlers of the commands `status.set`, `watch`, `unwatch` and `presence.get`."""

from __future__ import annotations

from collections.abc import Callable

from greendot.limits.rate_limits import RateLimits
from greendot.node.commands import CommandTable, Outcome
from greendot.node.session import Connection, Session
from greendot.presence.model import ManualStatus, project
from greendot.presence.status import StatusService
from greendot.presence.watch import WatchService
from greendot.protocol import commands as wire
from greendot.protocol.replies import StatusReply


class PresenceCommands:
    """Handlers of presence commands: check limits, then call the service.

    `hide` is called with a connection whose user has become invisible.
    """

    def __init__(
        self,
        statuses: StatusService,
        watching: WatchService,
        rate_limits: RateLimits,
        hide: Callable[[Connection], None],
    ) -> None:
        self._statuses = statuses
        self._watching = watching
        self._rate_limits = rate_limits
        self._hide = hide
        self.commands: CommandTable = {
            wire.StatusSet: self._status_set,
            wire.Watch: self._watch,
            wire.Unwatch: lambda connection, session, command: watching.unwatch(connection, session, command.users),
            wire.PresenceGet: self._presence_get,
        }

    async def _status_set(self, connection: Connection, session: Session, command: wire.StatusSet) -> Outcome:
        status = ManualStatus(command.status, command.until, command.text)
        snapshot = await self._statuses.set(session.key, status)
        if command.status == "invisible":
            self._hide(connection)
        snapshot = await self._watching.snapshots.with_profile(session.key, snapshot)
        return StatusReply(project(session.user, snapshot, own=True))

    async def _watch(self, connection: Connection, session: Session, command: wire.Watch) -> Outcome:
        self._rate_limits.watch(connection, session, len(command.users))
        return await self._watching.watch(connection, session, command.users)

    async def _presence_get(self, connection: Connection, session: Session, command: wire.PresenceGet) -> Outcome:
        self._rate_limits.watch(connection, session, len(command.users))
        return await self._watching.read(session, command.users)
