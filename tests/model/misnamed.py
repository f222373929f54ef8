"""Each place for an id in commands and HTTP requests. `{bad}` marks the id."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from model.apart import CLOSED, OPEN, Names

COMMANDS: list[dict[str, Any]] = [
    {"type": "watch", "users": ["{user}", "{bad}", "{other}"]},
    {"type": "unwatch", "users": ["{user}", "{bad}"]},
    {"type": "presence.get", "users": ["{bad}", "{user}"]},
    {"type": "privacy.set", "hide_from": ["{other}", "{bad}"], "last_seen": "hidden"},
    {"type": "typing.start", "room": "{bad}"},
    {"type": "typing.stop", "room": "{bad}"},
    {"type": "room.join", "room": "{bad}"},
    {"type": "room.leave", "room": "{bad}"},
    {"type": "room.present", "room": "{bad}"},
    {"type": "room.present", "room": "{room}", "after": "{bad}"},
    {"type": "room.send", "room": "{bad}", "body": 1},
    {"type": "room.send", "room": "{room}", "body": 1, "key": "{bad}"},
    {"type": "room.edit", "room": "{bad}", "ref": 1, "body": 1},
    {"type": "room.edit", "room": "{room}", "ref": 1, "body": 1, "key": "{bad}"},
    {"type": "room.delete", "room": "{bad}", "ref": 1},
    {"type": "room.react", "room": "{bad}", "ref": 1, "reaction": "+"},
    {"type": "room.react", "room": "{room}", "ref": 1, "reaction": "+", "key": "{bad}"},
    {"type": "room.read", "room": "{bad}", "seq": 1},
    {"type": "room.receipts", "room": "{bad}"},
    {"type": "room.receipts", "room": "{room}", "after": "{bad}"},
    {"type": "room.history", "room": "{bad}"},
    {"type": "signal.send", "room": "{bad}", "kind": "k"},
    {"type": "signal.send", "user": "{bad}", "kind": "k"},
    {"type": "signal.send", "user": "{other}", "kind": "{bad}"},
    {"type": "signal.send", "user": "{other}", "kind": "k", "key": "{bad}"},
]
PATHS = [
    ("GET", "/v1/users/{bad}/presence"),
    ("GET", "/v1/users/{bad}/sessions"),
    ("GET", "/v1/users/{bad}/inbox"),
    ("PUT", "/v1/users/{bad}/status"),
    ("PUT", "/v1/users/{bad}/contacts/{other}"),
    ("PUT", "/v1/users/{user}/contacts/{bad}"),
    ("DELETE", "/v1/users/{user}/contacts/{bad}"),
    ("GET", "/v1/rooms/{bad}"),
    ("PUT", "/v1/rooms/{bad}"),
    ("GET", "/v1/rooms/{bad}/members"),
    ("GET", "/v1/rooms/{bad}/messages"),
    ("PUT", "/v1/rooms/{room}/members/{bad}"),
    ("DELETE", "/v1/rooms/{room}/members/{bad}"),
    ("DELETE", "/v1/sessions/{bad}"),
]
BODIES: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v1/presence/query", {"users": ["{user}", "{bad}"]}),
    ("POST", "/v1/rooms/{room}/messages", {"user": "{bad}", "body": 1}),
    ("POST", "/v1/rooms/{room}/messages", {"user": "{user}", "body": 1, "key": "{bad}"}),
    ("POST", "/v1/notifications", {"user": "{bad}", "kind": "k", "body": 1}),
    ("POST", "/v1/notifications", {"user": "{user}", "kind": "{bad}", "body": 1}),
    (
        "POST",
        "/v1/notifications",
        {"notifications": [{"user": "{user}", "kind": "k", "body": 1}, {"user": "{bad}", "kind": "k", "body": 1}]},
    ),
    ("POST", "/v1/signals", {"user": "{bad}", "kind": "k"}),
    ("POST", "/v1/signals", {"room": "{bad}", "kind": "k"}),
    ("POST", "/v1/signals", {"user": "{user}", "kind": "k", "from": "{bad}"}),
    ("POST", "/v1/tokens/revoke", {"user": "{bad}"}),
    ("POST", "/v1/tokens/revoke", {"session": "{bad}"}),
]


def filled(template: Any, names: Names, bad: str, *, quoted: bool = False) -> Any:
    """Fill names and the bad id into the template."""
    if isinstance(template, dict):
        return {key: filled(value, names, bad) for key, value in template.items()}
    if isinstance(template, list):
        return [filled(value, names, bad) for value in template]
    if not isinstance(template, str):
        return template
    user, other = names.users
    for part, name in {
        "{user}": user,
        "{other}": other,
        "{room}": names.rooms[OPEN],
        "{closed}": names.rooms[CLOSED],
    }.items():
        template = template.replace(part, name)
    return template.replace("{bad}", quote(bad, safe="") if quoted else bad)
