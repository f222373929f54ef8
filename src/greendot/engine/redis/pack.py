"""The packed text of `lua/record.lua`, read and written on this side."""

from __future__ import annotations

from urllib.parse import quote, unquote

from greendot.core.presence import Change, Face, Snapshot
from greendot.ids import incarnation_of
from greendot.protocol.events import State, Status

_STATES: dict[str, State] = {"o": "online", "i": "idle", "b": "busy", "f": "offline"}
_STATUSES: dict[str, Status] = {"": "auto", "b": "busy", "i": "invisible"}
STATUS_LETTERS: dict[str, str] = {status: letter for letter, status in _STATUSES.items()}


def escape(text: str | None) -> str:
    """A name or text without the characters that separate fields; people's own letters stay as they are."""
    if not text:
        return ""
    for mark in "%|,;":
        text = text.replace(mark, quote(mark, safe=""))
    return text


def unescape(text: str) -> str | None:
    return unquote(text) if text else None


def _number(text: str) -> int | None:
    return int(text, 16) if text else None


def read_face(text: str) -> Face:
    first, *rest = text.split(",")
    since, seen, note, status, until = (rest + [""] * 5)[:5]
    version = _number(first[1:]) or 0
    return Face(
        state=_STATES[first[0]],
        since=_number(since) or (version or None),
        last_seen=_number(seen),
        version=version,
        text=unescape(note),
        status=_STATUSES[status],
        until=_number(until),
    )


def read_snapshot(text: str) -> Snapshot:
    face, own, name, devices = text.split("|")
    return Snapshot(read_face(face), read_face(own), unescape(name), devices.split(",") if devices else [])


def read_change(text: str) -> Change:
    face, own, name, devices, public, private = text.split("|")
    return Change(
        read_face(face),
        read_face(own),
        unescape(name),
        devices.split(",") if devices else [],
        bool(public),
        bool(private),
    )


def nodes_of(record: str) -> set[str]:
    """The incarnations that hold sessions of a packed record."""
    seats = [seat.split(",") for seat in record.split("|")[5].split(";")]
    return {seat[6] if len(seat) > 6 else incarnation_of(seat[0]) for seat in seats}
