"""Port for changes of messages and rooms by the app. Each change writes its entry of the audit in its transaction."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from greendot.store.audit import AuditNote
from greendot.store.rooms import Draft, Room, Written

DELETE_ROOMS = "delete-rooms"  # name of the job that removes the rows of deleted rooms


class Purged(NamedTuple):
    """Result of one step of `ModerationStore.purge_rooms`."""

    rows: int  # removed
    is_over: bool  # no deleted room is left


class ModerationStore(Protocol):
    """Port for moderated messages, and for archived and deleted rooms."""

    async def moderate(self, tenant: str, room: str, draft: Draft, note: AuditNote) -> Written | None:
        """Edit or delete a message (`draft.op`, `draft.ref`); None if there is no such room.

        A deletion erases the content of the message and of its edits: they keep number, author and time, and get the
        operation `erased`. If the message was deleted before, the record of the first deletion is returned.
        NoSuchMessage if there is no such message, or if a deleted message is edited. The author becomes the user of
        the note. Nothing is written for a known key.
        """
        ...

    async def archive_room(self, tenant: str, room: str, archived: bool, note: AuditNote) -> Room | None:
        """Archive the room or end that; return the room, None if there is none. A change raises `members_rev`.

        The note is written only with a change.
        """
        ...

    async def delete_room(self, tenant: str, room: str, note: AuditNote) -> bool:
        """Delete the room: from now on no read finds it. Its rows stay until `purge_rooms` has removed them.

        Make the job `DELETE_ROOMS` due. Return False if there is no such room and none of the name is being deleted.
        """
        ...

    async def purge_rooms(self, now: int, limit: int) -> Purged:
        """Remove at most `limit` rows of deleted rooms, in one commit. `now` is the time of the store.

        The rows are those of all tables with the columns `tenant` and `room`, except the audit. The name of a room is
        free again when no row is left and no statement that began before the deletion can still write one.
        """
        ...
