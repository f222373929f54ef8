"""What a played provider is asked, and what it does about it."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple


class Asked(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]  # by names in lower case
    body: bytes


class Answer(NamedTuple):
    """What it is answered."""

    status: int
    body: bytes = b""
    headers: dict[str, str] | None = None

    @classmethod
    def json(cls, status: int, body: Any, **headers: str) -> Answer:
        return cls(status, json.dumps(body).encode(), {"content-type": "application/json"} | headers)


# hang: no answer, ever. reset: the connection is cut off. lost: it is taken, and then the connection is cut off.
# slow: an answer that does not come to its end. goaway: the connection is closed in order, without an answer (HTTP/2).
Does = Answer | Literal["hang", "reset", "lost", "slow", "goaway"] | None  # None: as the real one does
