"""Decoder and encoder of the packed text of `lua/record.lua`."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple
from urllib.parse import quote, unquote

from greendot.ids import incarnation_of
from greendot.presence.model import Change, Snapshot, VisibleState
from greendot.protocol.events import State, Status

_STATES: dict[str, State] = {"o": "online", "i": "idle", "b": "busy", "f": "offline"}
_STATUSES: dict[str, Status] = {"": "auto", "b": "busy", "i": "invisible"}
STATUS_LETTERS: dict[str, str] = {status: letter for letter, status in _STATUSES.items()}


def escape(text: str | None) -> str:
    """Return a name or text with the field separators percent-encoded. All other characters stay unchanged."""
    if not text:
        return ""
    for mark in "%|,;":
        text = text.replace(mark, quote(mark, safe=""))
    return text


def unescape(text: str) -> str | None:
    return unquote(text) if text else None


def _number(text: str) -> int | None:
    return int(text, 16) if text else None


def read_visible(text: str) -> VisibleState:
    state, version = _STATES[text[0]], text[1:]
    if "," not in text:  # the common case: `since` is the version, and there are no other fields
        number = int(version, 16) if version else 0
        return VisibleState(state, number or None, None, number)
    version, *rest = version.split(",")
    number = int(version, 16) if version else 0
    if len(rest) == 2:  # the common case of offline users
        since, seen = rest
        return VisibleState(state, int(since, 16) if since else (number or None), int(seen, 16), number)
    since, seen, note, status, until = (rest + [""] * 5)[:5]
    return VisibleState(
        state=state,
        since=_number(since) or (number or None),
        last_seen=_number(seen),
        version=number,
        text=unescape(note),
        status=_STATUSES[status],
        until=_number(until),
    )


def read_change(text: str) -> Change:
    visible, own, name, devices, public, private, restored = text.split("|")
    return Change(
        read_visible(visible),
        read_visible(own),
        unescape(name),
        devices.split(",") if devices else [],
        bool(public),
        bool(private),
        bool(restored),
    )


UNKNOWN = Snapshot(VisibleState(), VisibleState(), None, [])


# Pattern of most records: one connected session, an automatic status, the same visible state for all readers.
_simple = re.compile(
    r"([oif])([0-9a-f]++)(?:,([0-9a-f]++))?\|\|([^|%]*+)\|a(?:,[0-9a-f]*+)?\|[0-9a-f]*+"
    r"\|([^-,;|]*+)-[^,;|]*+(?:,([^,;|]*+)(?:,[0-9a-f]*+(?:,i)?)?)?"
).fullmatch


def read_snapshot(record: bytes, alive: Container[str], now: int) -> Snapshot | None:
    """Return the snapshot in a user's record, as `lua/read.lua` returns it.

    Return None if some data may have expired by `now`.
    """
    text = record.decode()
    simple = _simple(text)
    if simple is not None:
        letter, version, since, name, node, device = simple.groups()
        if node in alive:
            number = int(version, 16)
            visible = VisibleState(_STATES[letter], int(since, 16) if since else number, None, number)
            return Snapshot(visible, visible, name or None, [device or "default"])
    return _read_snapshot(text, alive, now)


def _read_snapshot(text: str, alive: Container[str], now: int) -> Snapshot | None:
    parts = text.split("|")
    if len(parts) == 2:  # no sessions
        visible = read_visible(parts[0])
        return Snapshot(visible, visible, unescape(parts[1]), [])
    if len(parts) == 1:
        return UNKNOWN
    first, own_text, name, manual, _, entries = parts
    if "," in manual:
        fields = manual.split(",")
        if len(fields) > 2 and fields[2] and int(fields[2], 16) <= now:
            return None
    devices = []
    for entry in entries.split(";"):
        fields = entry.split(",")
        node = incarnation_of(fields[0])
        if len(fields) > 4:
            if fields[4] and int(fields[4], 16) <= now:
                return None
            if len(fields) > 6:
                node = fields[6]
        if node not in alive:
            return None
        devices.append((fields[1] if len(fields) > 1 else "") or "default")
    if len(devices) > 1:
        devices = sorted({*devices})
    visible = read_visible(first)
    return Snapshot(visible, read_visible(own_text) if own_text else visible, unescape(name) if name else None, devices)


class PackedSession(NamedTuple):
    """Session in a packed record."""

    session: str
    device: str
    conn: int
    idle: bool
    deadline: int | None
    node: str


def read_sessions(record: str) -> list[PackedSession]:
    parts = record.split("|")
    found = []
    for entry in parts[5].split(";") if len(parts) == 6 and parts[5] else ():
        session, device, conn, idle, deadline, _, node = (entry.split(",") + [""] * 6)[:7]
        kept = session, device or "default", _number(conn) or 1, idle == "i", _number(deadline)
        found.append(PackedSession(*kept, node or incarnation_of(session)))
    return found


def nodes_of(record: str) -> set[str]:
    """Return the incarnations that hold sessions of a packed record."""
    return {entry.node for entry in read_sessions(record)}
