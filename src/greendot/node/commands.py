"""Handlers of client commands: their type, and the merge of all capabilities' tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Raw

from greendot.errors import Refused
from greendot.node.session import Connection, Session
from greendot.protocol.codes import Err
from greendot.protocol.commands import Command
from greendot.protocol.replies import Reply

Outcome = Reply | Raw | None  # Raw: the data of a large reply, encoded in slices
Result = Outcome | Awaitable[Outcome]
# The connection is the one that the command arrived on. By the time the handler runs, the session may have another.
Handler = Callable[[Connection, Session, Any], Result]
CommandTable = Mapping[type[Command], Handler]


def merge_commands(*tables: CommandTable) -> dict[type[Command], Handler]:
    """Return one table of all commands. Two handlers for one command are a programming error."""
    merged: dict[type[Command], Handler] = {}
    for table in tables:
        twice = merged.keys() & table.keys()
        assert not twice, f"two handlers for {twice}"
        merged.update(table)
    return merged


def check_may_send(session: Session) -> None:
    """Raise Refused if the session's token allows only listening."""
    if not session.grants.send:
        raise Refused(Err.FORBIDDEN, "the token does not allow sending; use a token whose claim `send` is true")
