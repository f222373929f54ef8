"""Webhook requests of a Greendot server, as its apps receive them."""

from __future__ import annotations

import json
import time
from typing import Any

from greendot.protocol.webhooks import signature

WEBHOOK_SECRET = "the secret of a webhook, for tests only"
# Data of an event of each type.
EVENTS: dict[str, dict[str, Any]] = {
    "user.online": {"user": "ann"},
    "user.offline": {"user": "ann"},
    "room.occupied": {"room": "lobby"},
    "room.vacated": {"room": "lobby"},
    "room.message": {
        "room": "lobby",
        "seq": 1,
        "id": "m1",
        "user": "ann",
        "name": "Ann",
        "body": {"text": "hello"},
        "at": 1,
        "ref": None,
        "op": None,
    },
    "notification.created": {
        "user": "ann",
        "seq": 1,
        "id": "n1",
        "kind": "order",
        "body": {"order": 17},
        "created_at": 1,
        "ack": False,
    },
    "notification.updated": {"user": "ann", "state": "read", "ids": ["n1"]},
    "audit.created": {
        "number": 1,
        "actor": "key",
        "action": "mute",
        "room": "lobby",
        "user": "ann",
        "ref": None,
        "reason": None,
        "until": None,
        "slow_mode_s": None,
    },
}


def delivery(*events: tuple[str, dict[str, Any]], id_: str = "d") -> bytes:
    """Return the body of a request. An event with the same type and data at the same place has the same id."""
    listed = [
        {"id": f"{place}-{type_}", "type": type_, "tenant": "default", "at": 1, "data": data}
        for place, (type_, data) in enumerate(events)
    ]
    return json.dumps({"id": id_, "sent_at": 1, "events": listed}).encode()


def signed(body: bytes, *, secret: str = WEBHOOK_SECRET, at: float | None = None) -> tuple[bytes, str]:
    """Return the body with the value of its signature header."""
    return body, signature([secret], int(time.time() if at is None else at), body)
