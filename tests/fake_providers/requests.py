"""Requests to a fake provider, and its answers."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple


class Asked(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]  # by names in lower case
    body: bytes


class Answer(NamedTuple):
    """One answer."""

    status: int
    body: bytes = b""
    headers: dict[str, str] | None = None

    @classmethod
    def json(cls, status: int, body: Any, **headers: str) -> Answer:
        return cls(status, json.dumps(body).encode(), {"content-type": "application/json"} | headers)


# hang: no answer. reset: the connection is cut. lost: the request is accepted, and then the connection is cut.
# slow: an answer that never ends. goaway: an orderly close of the connection without an answer (HTTP/2).
Does = Answer | Literal["hang", "reset", "lost", "slow", "goaway"] | None  # None: as the real provider does
