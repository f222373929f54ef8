"""Commands about the connection itself: `heartbeat`, `activity`, `token.refresh`, `bye`."""

from __future__ import annotations

from greendot.clock import Clock
from greendot.connect.token_refresh import TokenRefresher
from greendot.node.commands import CommandTable
from greendot.node.session import Session
from greendot.protocol import commands as wire
from greendot.protocol.codec import encode_event
from greendot.protocol.events import HeartbeatAck
from greendot.transport.connection import Connection


class ConnectionCommands:
    """Handlers. `hello` is not among them: `connect.hello` takes it, because no session exists before it."""

    def __init__(self, clock: Clock, token_refresh: TokenRefresher) -> None:
        self._clock = clock
        self.commands: CommandTable = {
            wire.Heartbeat: self._heartbeat,
            wire.Activity: lambda connection, session, command: None,  # every command counts as activity
            wire.TokenRefresh: token_refresh.refresh,
            wire.Bye: lambda connection, session, command: connection.said_bye(),
        }

    def _heartbeat(self, connection: Connection, session: Session, command: wire.Heartbeat) -> None:
        frame = encode_event(HeartbeatAck(), self._clock.now_ms())
        connection.send(frame, key="heartbeat", record=False)
