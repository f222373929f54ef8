"""Output of `greendot inspect`: a summary, then tables of what belongs to it, each with when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greendot.cli._tables import NOTHING, ago, duration, left, printable, several, table

WIDE = 10  # columns for the names of facts
WATCH_MODES = {
    "live": "told of changes at once",
    "slices": "so many that they are told of changes in slices",
    "asked": "so many that they are told nothing and ask",
}
LEVELS = {"shedding": "sheds signals", "refusing": "refuses new work", "normal": "has enough room"}


def user(it: dict[str, Any], now: int) -> list[str]:
    own, seen = it["own"], it["seen_as"]
    name = f", {it['name']}" if it["name"] not in (None, it["user"]) else ""
    others = f"; others see {seen['state']}" if seen["state"] != own["state"] else ""
    since = f", since {ago(own['since'], now)}" if own["since"] else ""
    lines = [f"{it['user']}{name} (tenant {it['tenant']}) is {own['state']}{since}{others}."]
    if (status := it["status"]) is not None and status["status"] != "auto":
        text = f", “{status['text']}”" if status["text"] else ""
        lines.append(_fact("status", f"{status['status']}{text}{_until(status['until'], now)}"))
    if own["last_seen"] is not None:
        kept = left(own["last_seen"] + it["last_seen_kept_ms"] - now)
        lines.append(_fact("last seen", f"{ago(own['last_seen'], now)}; forgotten in {kept}"))
    inbox = it["inbox"]
    kept = f"each kept for {duration(it['inbox_kept_ms'])}"
    counts = f"{inbox['unread']} unread, {inbox['unseen']} unseen, newest number {inbox['head']}; {kept}"
    lines.append(_fact("inbox", counts if inbox["head"] else "never notified"))
    watchers = it["watchers"]
    lines.append(
        _fact("watchers", f"{watchers['count']}, {WATCH_MODES[watchers['told']]}" if watchers["count"] else "none")
    )
    if it["typing"]:
        typing = ", ".join(f"{one['room']} (ends in {left(one['expires_in_ms'])})" for one in it["typing"])
        lines.append(_fact("typing in", typing))
    if it["revoked_before"]:
        lines.append(_fact("revoked", f"tokens issued before {ago(it['revoked_before'], now)}"))
    return [printable(line) for line in lines] + _belongings(it, now)


def _belongings(it: dict[str, Any], now: int) -> list[str]:
    """Return the tables of a user: sessions, leases of their nodes, rooms, push devices, pushes."""
    sessions = [_session(session, now) for session in it["sessions"]]
    head = "SESSION", "DEVICE", "NODE", "STATE", "ENDS IN", "TOKEN ENDS IN", "HEARD", "ROOMS", "WATCHES", "WAITS"
    lines = _table(head, sessions) if sessions else ["", "No session."]
    lines += _leases(it["nodes"])
    rooms = [(r["room"], "open" if r["open"] else "member", str(r["head"]), str(r["unread"])) for r in it["rooms"]]
    lines += _table(("ROOM", "AS", "MESSAGES", "UNREAD"), rooms)
    if it["room_count"] > len(rooms):
        lines.append(f"… and {it['room_count'] - len(rooms)} more rooms.")
    devices = [(d["device"], d["provider"], ago(d["used_at"], now), left(d["kept_until"] - now)) for d in it["devices"]]
    lines += _table(("PUSHED TO", "BY", "USED", "REMOVED IN, UNLESS USED"), devices)
    pushes = [
        (str(p["number"]), _due_in(p["due_at"] - now), str(p["attempts"]), p["reason"] or "new") for p in it["pushes"]
    ]
    return lines + _table(("NOTIFICATION", "PUSH DUE", "TRIES", "WHY"), pushes)


def _session(it: dict[str, Any], now: int) -> tuple[str, ...]:
    expires = it.get("token_expires_at")
    return (
        it["session"],
        it["device"],
        it["node"],
        it["state"],
        left(it.get("ends_in_ms")),
        left(expires - now if expires else None),
        ago(it.get("last_heard") or None, now),
        str(len(it["rooms"])) if "watches" in it else NOTHING,
        str(it.get("watches", NOTHING)),
        f"{it['waiting']} B" if it.get("waiting") else NOTHING,
    )


def _leases(nodes: Sequence[dict[str, Any]]) -> list[str]:
    rows = [
        (n["node"], n["state"], n["level"], left(n["lease_ends_in_ms"]), left(n["sessions_end_in_ms"])) for n in nodes
    ]
    return _table(("NODE", "STATE", "LOAD", "LEASE ENDS IN", "ITS SESSIONS END IN"), rows)


def room(it: dict[str, Any], now: int) -> list[str]:
    whom = "open to everybody" if it["open"] else "for members only"
    lines = [
        f"{it['room']} (tenant {it['tenant']}) is {whom}, bus {it['bus']}.",
        _fact("messages", f"{it['head']}; kept without an end"),
        _fact("members", str(it["member_count"])),
        _fact("present", f"{it['present_count']}, by {several(it['listeners'], 'socket')}"),
    ]
    typing = [(who, left(ms)) for who, ms in it["typing_ends_in_ms"].items()]
    lines += _table(("TYPING", "ENDS IN"), typing) if typing else [_fact("typing", "nobody")]
    lines += _table(("NODE", "LISTENERS"), [(n["node"], str(n["listeners"])) for n in it["nodes"]])
    lines += _table(("PRESENT",), [(who,) for who in it["present"]])
    lines += _table(("MEMBER", "ROLE"), [(m["user"], m["role"]) for m in it["members"]])
    if it["member_count"] > len(it["members"]):
        lines.append(f"… and {it['member_count'] - len(it['members'])} more members: greendot rooms {it['room']}")
    return [printable(one) if "\n" not in one else one for one in lines]


def node(it: dict[str, Any], now: int) -> list[str]:
    if it["state"] == "dead":
        ends = it["sessions_end_in_ms"]
        rest = f"its sessions end in {left(ends)}" if ends else "its sessions have ended"
        return [f"Node {it['node']} is dead, heard of {duration(it['renewed_ago_ms'] or 0)} ago; {rest}."]
    lease = f"Its lease ends in {left(it['lease_ends_in_ms'])}, unless it renews it."
    if not it["answered"]:
        return [f"Node {it['node']} is live, and does not answer. {lease}"]
    gauges = it["gauges"]
    lines = [
        f"Node {it['node']} is {'draining' if it['draining'] else 'live'}, {LEVELS[it['level']]}. {lease}",
        _fact("version", it["version"]),
        _fact("started", ago(it["started_at"], now)),
        _fact("sockets", f"{it['connections']}, of them {it['strangers']} that have not said who they are"),
        _fact("sessions", f"{it['sessions']}, of them {it['lingering']} lingering"),
        _fact("users", str(it["users"])),
        _fact("topics", f"{several(it['rooms'], 'room')}, {several(it['watched'], 'watched user')}"),
        _fact("timers", str(it["timers"])),
    ]
    lines += _table(("TENANT", "CONNECTIONS"), [(name, str(count)) for name, count in it["tenants"].items()])
    return lines + _table(("GAUGE", "VALUE"), [(name, f"{value:g}") for name, value in sorted(gauges.items())])


def topic(it: dict[str, Any], now: int) -> list[str]:
    lines = [f"{it['kind']}:{it['name']} (tenant {it['tenant']}) has {several(it['listeners'], 'listener')}."]
    rows = [
        (
            n["node"],
            str(n["listeners"]),
            str(n["barred"]),
            n["told"] if it["kind"] == "watch" else NOTHING,
            str(n["frames"]),
            str(n["writes"]),
            "stale" if n["stale"] else "unheard" if n["unheard_in_ms"] is not None else "heard",
            left(n["unheard_in_ms"]),
        )
        for n in it["nodes"]
    ]
    lines += _table(("NODE", "LISTENERS", "BARRED", "TOLD", "FRAMES", "WRITES", "STATE", "GIVEN UP IN"), rows)
    if it["silent"]:
        lines.append(f"Not answered: {', '.join(it['silent'])}.")
    return lines


def _fact(name: str, what: str) -> str:
    return f"  {name:<{WIDE}} {what}"


def _until(until: int | None, now: int) -> str:
    return "" if until is None else f", ends in {left(until - now)}"


def _due_in(ms: int) -> str:
    return "now" if ms <= 0 else f"in {duration(ms)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return an empty line and a table; nothing without rows."""
    return ["", table(head, rows)] if rows else []
