"""Promises about messages, notifications and counters, checked against the store at the end of a trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulation.backend import AppBackend
from simulation.clients import Device
from simulation.nodes import DEN, ROOM, TENANT

if TYPE_CHECKING:
    from sqlite3 import Connection as Database

Fail = Callable[[str, str], None]


class RecordPromises:
    """Comparison of all devices with the store."""

    def __init__(self, db: Database, app: AppBackend, fail: Fail) -> None:
        self._db = db
        self._app = app
        self._fail = fail

    def check(self, devices: list[Device]) -> None:
        ours = [device for device in devices if not device.is_stranger]
        members = {user for (user,) in self._db.execute("SELECT user FROM members WHERE room = ?", (DEN,))}
        written: dict[str, tuple[str, int]] = {}
        for room in (ROOM, DEN):
            self._check_room(room, ours, members, written)
        for device in ours:
            for key, place in device.records.acknowledged.items():
                if written.get(key) != place:
                    self._fail("records", f"{key} was acknowledged as {place}, and is {written.get(key)}")
        if missing := self._app.appended - written.keys():
            self._fail("records", f"messages of the app are missing: {sorted(missing)}")
        for device in ours:
            self._check_inbox(device)
        self._check_counters()

    def _check_room(
        self, room: str, devices: list[Device], members: set[str], written: dict[str, tuple[str, int]]
    ) -> None:
        sql = "SELECT seq, id, body, key FROM messages WHERE tenant = ? AND room = ? ORDER BY seq"
        rows = self._db.execute(sql, (TENANT, room)).fetchall()
        (head,) = self._db.execute("SELECT head FROM rooms WHERE tenant = ? AND room = ?", (TENANT, room)).fetchone()
        if [row[0] for row in rows] != [*range(1, head + 1)]:
            self._fail("records", f"{room} has the numbers {[row[0] for row in rows]}, and the head {head}")
        said = [(row[1], row[2].decode().strip('"')) for row in rows]
        for device in devices:
            seen = device.records.rooms[room].seen
            may_read = room == ROOM or device.user in members
            if seen != (said if _is_here(device) and may_read else said[: len(seen)]):
                self._fail("records", f"{device} has {len(seen)} of {len(said)} messages of {room}, or others")
        for seq, _, _, key in rows:
            if written.setdefault(key, (room, seq)) != (room, seq):
                self._fail("records", f"{key} was written twice")

    def _check_inbox(self, device: Device) -> None:
        inbox = device.records.inbox
        sql = "SELECT seq, id, body, key, archived_at FROM notifications WHERE tenant = ? AND user = ? ORDER BY seq"
        rows = self._db.execute(sql, (TENANT, device.user)).fetchall()
        if [row[0] for row in rows] != [*range(1, len(rows) + 1)]:
            self._fail("records", f"the inbox of {device.user} has the numbers {[row[0] for row in rows]}")
        expected = sorted(key for key, user in self._app.notified.items() if user == device.user)
        if sorted(row[3] for row in rows) != expected:
            self._fail("records", f"the inbox of {device.user} has {len(rows)} of {len(expected)} notifications")
        seen, order = dict(inbox.seen), [(row[1], row[2].decode().strip('"')) for row in rows]
        if [item for item in order if item[0] in seen] != inbox.seen:
            self._fail("records", f"{device} has got its notifications in another order")
        if not _is_here(device):
            return
        if missing := [row[0] for row in rows if row[4] is None and row[1] not in inbox.ids]:
            self._fail("records", f"{device} has not got the notifications {missing}")
        sql = "SELECT unread, unseen FROM inboxes WHERE tenant = ? AND user = ?"
        counted = self._db.execute(sql, (TENANT, device.user)).fetchone() or (0, 0)
        if inbox.badge is not None and inbox.badge != counted:
            self._fail("counters-true", f"{device} shows {inbox.badge}, and the store has {counted}")
        if device.records.unread != counted[0]:
            self._fail("counters-true", f"{device} shows {device.records.unread} unread, and the store has {counted}")

    def _check_counters(self) -> None:
        recount = "SELECT user, SUM(read_at IS NULL), SUM(seen_at IS NULL) FROM notifications GROUP BY user"
        counted, kept = (
            sorted(self._db.execute(recount)),
            sorted(self._db.execute("SELECT user, unread, unseen FROM inboxes")),
        )
        if counted != kept:
            self._fail("counters-true", f"a recount has {counted}, and the counters are {kept}")


def _is_here(device: Device) -> bool:
    return device.is_ready and not device.is_silent
