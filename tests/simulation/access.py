"""Promises about access: nothing for users who were removed or revoked, for other tenants, and for intruders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simulation.nodes import DEN, ROOM

if TYPE_CHECKING:
    from simulation.clients import Contact, Device
    from simulation.promises import Promises

READS_S = 20.0  # a node reads missed revocations within this time after a fault


class Access:
    """Access of users as the app knows it, and the checks."""

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self._removed: dict[str, float] = {}  # user → time at which the app knew of the removal from the den
        self._revoked: dict[int, float] = {}  # id of a contact → time at which the app knew of the revocation
        self.devices: list[Device] = []

    # --- from the app ---

    def admitted(self, user: str) -> None:
        self._removed.pop(user, None)

    def joinable(self, user: str) -> None:
        for device in self._of(user):
            device.records.join(DEN)

    def removed(self, user: str) -> None:
        self._removed[user] = self._promises.now

    def revoking(self, user: str) -> None:
        """Expect the end of all connections of the user at any time from now on."""
        for contact in self._promises.contacts:
            if contact.device.user == user and contact.superseded_at is None:
                contact.superseded_at = self._promises.now

    def revoked(self, user: str) -> None:
        for contact in self._promises.contacts:
            if contact.device.user == user and contact.ended_at is None:
                self._revoked[id(contact)] = self._promises.now

    def _of(self, user: str) -> list[Device]:
        return [device for device in self.devices if device.user == user and not device.is_stranger]

    # --- frames ---

    def written(self, contact: Contact, frame: dict[str, Any]) -> None:
        """Check a frame that a node writes to a user's device."""
        user, kind, data = contact.device.user, frame["type"], frame.get("data", {})
        if id(contact) in self._revoked and kind not in ("closed", "error") and self._has_read(contact):
            self._promises.fail("revoked", f"{contact.device} on {contact.node} gets {kind} after its revocation")
        if user in self._removed and _room_shown(kind, data) == DEN:
            self._promises.fail("removed", f"{contact.device} on {contact.node} gets {kind} of the den")
        for entry in _entries(kind, data):
            if "rival" in (entry.get("devices") or ()):
                self._promises.fail("tenants-apart", f"{contact.device} gets {entry}")

    def _has_read(self, contact: Contact) -> bool:
        """Return whether the node must know the revocation: one that was cut off reads the store later."""
        at = self._revoked[id(contact)]
        return self._promises.is_steady(contact.node, at - READS_S) or self._promises.is_steady_for(contact, READS_S)

    def written_to_stranger(self, contact: Contact, frame: dict[str, Any]) -> None:
        """Check a frame to a client of another tenant, whose users have the same names."""
        user, kind, data = contact.device.user, frame["type"], frame.get("data", {})
        others = [entry for entry in _entries(kind, data) if entry["user"] != user]
        own = [entry for entry in _entries(kind, data) if entry["user"] == user]
        shown = any(entry["state"] != "offline" or entry["version"] for entry in others)
        shown = shown or any({*(entry.get("devices") or ())} - {"rival"} for entry in own)
        shown = shown or kind in ("room.message", "notification.created")
        shown = shown or (kind in ("room.entered", "typing.started") and data["user"] != user)
        shown = shown or bool(data.get("messages")) or bool({*data.get("users", ())} - {user})
        shown = shown or bool(data.get("unread") if isinstance(data.get("unread"), int) else 0)
        if shown:
            self._promises.fail("tenants-apart", f"the client of another tenant gets {frame}")


def _entries(kind: str, data: dict[str, Any]) -> list[dict[str, Any]]:
    if kind == "presence.changed":
        return [data]
    return list(data["presence"]) if kind == "reply" and isinstance(data.get("presence"), list) else []


def _room_shown(kind: str, data: dict[str, Any]) -> str | None:
    """Return the room whose content a frame has."""
    if kind in ("room.message", "typing.started", "room.entered", "room.left"):
        return str(data["room"])
    if kind == "reply" and (messages := data.get("messages")):
        return str(messages[0]["room"])
    return None


class Intruder:
    """Hostile client of the same tenant: it tries to enter, to impersonate, and to break the protocol."""

    def __init__(self, fail: Callable[[str, str], None]) -> None:
        self.denied: set[int] = set()  # numbers of the commands that must be refused
        self.may_enter = True
        self._fail = fail

    def written(self, frame: dict[str, Any]) -> None:
        """Check a frame that a node writes to the intruder."""
        if frame["type"] == "reply" and frame.get("id") in self.denied:
            self._fail("intruder", f"the reply {frame}")
        if frame["type"] == "welcome" and (frame["data"]["resumed"] or not self.may_enter):
            self._fail("intruder", "the session of another user was resumed, or a forged token accepted")
        if frame["type"] == "notification.created" or _room_shown(frame["type"], frame.get("data", {})) == DEN:
            self._fail("intruder", f"{frame}")


FORBIDDEN: tuple[dict[str, Any], ...] = (
    {"type": "room.join", "room": DEN},
    {"type": "room.history", "room": DEN},
    {"type": "room.send", "room": DEN, "body": "intruder"},
    {"type": "room.present", "room": DEN},
    {"type": "room.read", "room": DEN, "seq": 1},
    {"type": "typing.start", "room": DEN},
    {"type": "typing.start", "room": "nowhere"},
    {"type": "signal.send", "room": DEN, "kind": "cursor", "body": 1},
    {"type": "room.edit", "room": ROOM, "ref": 1, "body": "changed"},
    {"type": "room.delete", "room": ROOM, "ref": 1},
    {"type": "watch", "users": ["bad\nname"]},
    {"type": "status.set", "status": "online"},
    {"type": "no.such.command"},
)
