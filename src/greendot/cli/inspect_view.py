"""Output of `greendot inspect`: a summary, then tables with expiry times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greendot.cli._tables import NOTHING, ago, duration, left, printable, several, table

WIDE = 10  # columns for the names of facts
WATCH_MODES = {
    "live": "changes are delivered at once",
    "slices": "changes are delivered in slices, because there are many watchers",
    "asked": "changes are not delivered; they poll",
}
DELIVERY = {"live": "live", "slices": "slices", "asked": "polled"}
LEVELS = {"shedding": "shedding signals", "refusing": "refusing new work", "normal": "load normal"}


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
        lines.append(_fact("last seen", f"{ago(own['last_seen'], now)}; removed in {kept}"))
    inbox = it["inbox"]
    kept = f"kept for {duration(it['inbox_kept_ms'])}"
    counts = f"{inbox['unread']} unread, {inbox['unseen']} unseen, newest number {inbox['head']}; {kept}"
    lines.append(_fact("inbox", counts if inbox["head"] else "no notifications yet"))
    watchers = it["watchers"]
    lines.append(
        _fact("watchers", f"{watchers['count']}, {WATCH_MODES[watchers['told']]}" if watchers["count"] else "none")
    )
    if it.get("presence_mode", "auto") != "auto":  # nodes of the previous version do not report it
        lines.append(_fact("mode", f"{it['presence_mode']}, chosen by the app"))
    if it["typing"]:
        typing = ", ".join(f"{one['room']} (ends in {left(one['expires_in_ms'])})" for one in it["typing"])
        lines.append(_fact("typing in", typing))
    if it["revoked_before"]:
        lines.append(_fact("revoked", f"tokens issued before {ago(it['revoked_before'], now)}"))
    return [printable(line) for line in lines] + _belongings(it, now)


def _belongings(it: dict[str, Any], now: int) -> list[str]:
    """Return the tables of a user: sessions, leases of their nodes, rooms, push devices, pushes."""
    sessions = [_session(session, now) for session in it["sessions"]]
    head = (
        "SESSION",
        "DEVICE",
        "NODE",
        "STATE",
        "ENDS IN",
        "TOKEN EXPIRES IN",
        "LAST FRAME",
        "ROOMS",
        "WATCHES",
        "BUFFERED",
    )
    lines = _table(head, sessions) if sessions else ["", "No sessions."]
    lines += _leases(it["nodes"])
    rooms = [(r["room"], "open" if r["open"] else "member", str(r["head"]), str(r["unread"])) for r in it["rooms"]]
    lines += _table(("ROOM", "ACCESS", "MESSAGES", "UNREAD"), rooms)
    if it["room_count"] > len(rooms):
        lines.append(f"… and {it['room_count'] - len(rooms)} more rooms.")
    devices = [(d["device"], d["provider"], ago(d["used_at"], now), left(d["kept_until"] - now)) for d in it["devices"]]
    lines += _table(("PUSH DEVICE", "PROVIDER", "LAST USED", "REMOVED IN IF UNUSED"), devices)
    pushes = [
        (str(p["number"]), _due_in(p["due_at"] - now), str(p["attempts"]), p["reason"] or "new") for p in it["pushes"]
    ]
    return lines + _table(("NOTIFICATION", "PUSH DUE", "ATTEMPTS", "REASON"), pushes)


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
    return _table(("NODE", "STATE", "LOAD", "LEASE ENDS IN", "SESSIONS END IN"), rows)


def room(it: dict[str, Any], now: int) -> list[str]:
    whom = "open to all users" if it["open"] else "for members only"
    lines = [
        f"{it['room']} (tenant {it['tenant']}) is {whom}, bus mode {it['bus']}.",
        _fact("messages", f"{it['head']}; kept without limit"),
        _fact("members", str(it["member_count"])),
        _fact("occupants", f"{it['present_count']}, with {several(it['listeners'], 'connection')}"),
    ]
    typing = [(who, left(ms)) for who, ms in it["typing_ends_in_ms"].items()]
    lines += _table(("TYPING", "ENDS IN"), typing) if typing else [_fact("typing", "none")]
    lines += _table(("NODE", "SUBSCRIBERS"), [(n["node"], str(n["listeners"])) for n in it["nodes"]])
    lines += _table(("OCCUPANT",), [(who,) for who in it["present"]])
    lines += _table(("MEMBER", "ROLE"), [(m["user"], m["role"]) for m in it["members"]])
    if it["member_count"] > len(it["members"]):
        lines.append(f"… and {it['member_count'] - len(it['members'])} more members: greendot rooms {it['room']}")
    return [printable(one) if "\n" not in one else one for one in lines]


def node(it: dict[str, Any], now: int) -> list[str]:
    if it["state"] == "dead":
        ends = it["sessions_end_in_ms"]
        rest = f"its sessions end in {left(ends)}" if ends else "its sessions have ended"
        return [f"Node {it['node']} is dead. Its lease was renewed {duration(it['renewed_ago_ms'] or 0)} ago; {rest}."]
    lease = f"Its lease ends in {left(it['lease_ends_in_ms'])} unless renewed."
    if not it["answered"]:
        return [f"Node {it['node']} is live but does not answer. {lease}"]
    gauges = it["gauges"]
    lines = [
        f"Node {it['node']} is {'draining' if it['draining'] else 'live'}, {LEVELS[it['level']]}. {lease}",
        _fact("version", it["version"]),
        _fact("started", ago(it["started_at"], now)),
        _fact("sockets", f"{it['connections']}, {it['strangers']} of them without a hello yet"),
        _fact("sessions", f"{it['sessions']}, {it['lingering']} of them lingering"),
        _fact("users", str(it["users"])),
        _fact("topics", f"{several(it['rooms'], 'room')}, {several(it['watched'], 'watched user')}"),
        _fact("timers", str(it["timers"])),
    ]
    lines += _table(("TENANT", "CONNECTIONS"), [(name, str(count)) for name, count in it["tenants"].items()])
    return lines + _table(("GAUGE", "VALUE"), [(name, f"{value:g}") for name, value in sorted(gauges.items())])


def topic(it: dict[str, Any], now: int) -> list[str]:
    lines = [f"{it['kind']}:{it['name']} (tenant {it['tenant']}) has {several(it['listeners'], 'subscriber')}."]
    rows = [
        (
            n["node"],
            str(n["listeners"]),
            str(n["barred"]),
            DELIVERY[n["told"]] if it["kind"] == "watch" else NOTHING,
            str(n["frames"]),
            str(n["writes"]),
            "stale" if n["stale"] else "unused" if n["unheard_in_ms"] is not None else "in use",
            left(n["unheard_in_ms"]),
        )
        for n in it["nodes"]
    ]
    lines += _table(("NODE", "SUBSCRIBERS", "HIDDEN FROM", "DELIVERY", "FRAMES", "WRITES", "STATE", "REMOVED IN"), rows)
    if it["silent"]:
        lines.append(f"Nodes that did not answer: {', '.join(it['silent'])}.")
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
