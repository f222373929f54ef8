"""Moderation from the dashboard: mutes and bans of users, archived and deleted rooms. The audit names the key."""

from __future__ import annotations

from greendot.admin.access import DashboardServices
from greendot.admin.frames import Act, Moderation
from greendot.errors import Refused
from greendot.protocol.codes import Err
from greendot.rooms.moderation import RoomModeration
from greendot.rooms.restrictions import RestrictionService
from greendot.store.audit import AuditAction, AuditNote
from greendot.store.restrictions import EVERYWHERE, FOREVER, Restriction, RestrictionKind

_ACTIONS: dict[Moderation, AuditAction] = {
    "mute": "user.muted",
    "unmute": "user.unmuted",
    "ban": "user.banned",
    "unban": "user.unbanned",
    "archive": "room.archived",
    "unarchive": "room.unarchived",
    "delete": "room.deleted",
}
_OF_ROOMS = ("archive", "unarchive", "delete")


def moderation_of(act: Act) -> Moderation | None:
    """Return the moderation that an action is; None if it is another action. Raise Refused for a wrong target."""
    if act.do == "disconnect" or act.do == "revoke" or act.do == "notify":
        if act.room is not None:
            raise Refused(Err.BAD_FIELD, f"field `room` of act: {act.do} does not act on a room")
        return None
    if act.session is not None or act.node is not None:
        raise Refused(Err.BAD_FIELD, f"field `user` of act: {act.do} acts on a `user` or a `room`")
    if act.do in _OF_ROOMS and (act.room is None or act.user is not None):
        raise Refused(Err.BAD_FIELD, f"field `room` of act: {act.do} needs a `room`, and no `user`")
    if act.do not in _OF_ROOMS and act.user is None:
        raise Refused(Err.BAD_FIELD, f"field `user` of act: {act.do} needs a `user`")
    return act.do


class ModerationActions:
    """Actions on users and rooms, as the HTTP API does them."""

    def __init__(self, services: DashboardServices) -> None:
        self._services = services
        self._restrictions: RestrictionService = services.restrictions
        self._moderation: RoomModeration = services.moderation

    async def sentence(self, act: Act, do: Moderation, tenant: str, sessions: int) -> tuple[str, str]:
        """Return a title and a description of the effect. Raise Refused if there is no such room."""
        head = 0
        if act.room is not None:
            found = await self._services.store.room(tenant, act.room)
            if found is None:
                raise _no_room(act.room)
            head = found.head
        where = f" in room {act.room}" if act.room is not None else ""
        who = f"{act.user}{where} ({tenant})" if act.user is not None else f"room {act.room} ({tenant})"
        closed = "" if act.room else f" {sessions} session{'' if sessions == 1 else 's'} will be closed with 4501."
        place = f"room {act.room}" if act.room is not None else "any room"
        sentences: dict[Moderation, tuple[str, str]] = {
            "mute": (f"Mute {who}?", f"{act.user} can read, and can send nothing to {place}, until you end the mute."),
            "unmute": (f"End the mute of {who}?", f"{act.user} can send again. Other mutes of the user stay."),
            "ban": (
                f"Ban {who}?",
                f"{act.user} cannot {f'join or read {place}' if act.room else 'connect'} until you end this.{closed}",
            ),
            "unban": (f"End the ban of {who}?", f"{act.user} can return. Other bans of the user stay."),
            "archive": (f"Archive {who}?", "Users can read the room, and can send nothing to it. You can undo this."),
            "unarchive": (f"Reopen {who}?", "Users can send to the room again."),
            "delete": (
                f"Delete {who}?",
                f"All listeners are removed at once. The room with {head} messages, its members and all its data are "
                "deleted. You cannot undo this.",
            ),
        }
        return sentences[do]

    async def perform(self, act: Act, do: Moderation, tenant: str, key: str) -> str:
        """Do the action and return what was done. Raise Refused if the room does not exist any more."""
        user, room = act.user or "", act.room or EVERYWHERE
        note = AuditNote(tenant, self._services.clock.now_ms(), key, _ACTIONS[do], act.room, act.user)
        done: object
        if do == "mute" or do == "ban":
            kind: RestrictionKind = do
            restriction = Restriction(tenant, room, user, kind, FOREVER, note.at, key)
            done = await self._restrictions.restrict(restriction, note)
        elif do == "unmute" or do == "unban":
            done = await self._restrictions.lift(tenant, room, user, "mute" if do == "unmute" else "ban", note)
        elif do == "delete":
            done = await self._moderation.delete(tenant, room, note)
        else:
            done = await self._moderation.archive(tenant, room, do == "archive", note)
        if not done:
            raise _no_room(room)
        return _DONE[do]


_DONE: dict[Moderation, str] = {
    "mute": "user muted",
    "unmute": "mute ended",
    "ban": "user banned",
    "unban": "ban ended",
    "archive": "room archived",
    "unarchive": "room reopened",
    "delete": "room deleted",
}


def _no_room(room: str) -> Refused:
    return Refused(Err.BAD_FIELD, f"there is no room {room!r}; it may have been deleted")
