"""What an engine knows of records that were lost and are being restored by the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

RecordsState = Mapping[int, str]  # by partition: another one after a loss


class Part:
    """A part of the users and rooms, by where they are kept."""

    def covers(self, tenant: str, name: str) -> bool:
        """Whether this user or room is in it. All are, unless a subclass says otherwise."""
        return True

    def within(self, other: Part) -> bool:
        """Whether all of it is covered by another part. Unsure is no."""
        return type(other) is Part

    def away(self) -> Part | None:
        """What of it cannot be reached at the moment."""
        return None


class RestoringEngine(Protocol):
    """See `engine.base.Host.found` for how a node is told of a loss."""

    def is_restoring(self, tenant: str, name: str) -> bool:
        """Whether records of this user or room were lost and not all nodes have restored theirs: absence means nothing.

        It covers what was read before it is asked. It costs nothing.
        """
        ...

    async def is_any_restoring(self) -> bool:
        """Whether anything is being restored: a list may lack some. In one round trip per server."""
        ...

    def records_state(self, part: Part) -> RecordsState:
        """Return the state of a part's records, which changes when they are lost. It costs nothing."""
        ...

    async def restored(self, part: Part, since: RecordsState) -> None:
        """This node has told the engine all it holds of a part that was lost; it began in the state `since`.

        Where the state has changed since, records were lost again, and this does not count.
        Returns when every live node has, or a lease after the loss; EngineUnavailable if the part goes away meanwhile.
        """
        ...
