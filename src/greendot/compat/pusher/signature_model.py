"""Signatures of the Pusher protocol: HMAC-SHA256 in hexadecimal digits.

Subscriptions and sign-ins are signed by the app for one socket. Requests to the HTTP API are signed over method, path
and query. Webhooks are signed over the body.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from hashlib import md5, sha256
from urllib.parse import parse_qsl

LATE_S = 600  # longest distance of a request's time from ours
SAME_S = 2.0  # two requests in one second may be equal; an equal one after this time is a replay
MOST_FIELDS = 50  # in the query of a request


def sign(secret: str, text: str | bytes) -> str:
    """Return the signature of a text."""
    return hmac.new(secret.encode(), text.encode() if isinstance(text, str) else text, sha256).hexdigest()


def is_signed(secrets: Iterable[str], text: str, signature: str) -> bool:
    """Return whether one of the secrets made the signature. The time taken does not depend on the signature."""
    given = signature.encode(errors="replace")
    return any(hmac.compare_digest(sign(secret, text).encode(), given) for secret in secrets)


def channel_text(socket_id: str, channel: str, data: str | None) -> str:
    """Return the text that authorises a subscription. `data` is the channel data as received."""
    return f"{socket_id}:{channel}" if data is None else f"{socket_id}:{channel}:{data}"


def user_text(socket_id: str, user_data: str) -> str:
    """Return the text that authorises a sign-in."""
    return f"{socket_id}::user::{user_data}"


class WrongRequest(Exception):
    """Request to the HTTP API with a missing or wrong signature. The message names the remedy."""


class SignedRequest:
    """Parameters of a request to the HTTP API, before `check`."""

    def __init__(self, method: str, path: str, query: bytes) -> None:
        try:
            pairs = parse_qsl(query.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
        except ValueError:
            raise WrongRequest("the query of the request is not valid") from None
        self.values = {name.lower(): value for name, value in pairs}
        if len(self.values) != len(pairs):  # the signature covers one value of each name
            raise WrongRequest("the query of the request has a parameter twice")
        self._text = f"{method}\n{path}\n" + "&".join(
            f"{name}={self.values[name]}" for name in sorted(self.values) if name != "auth_signature"
        )

    @property
    def key(self) -> str:
        return self.values.get("auth_key", "")

    @property
    def signature(self) -> str:
        return self.values.get("auth_signature", "")

    @property
    def accepted_until_s(self) -> int:
        """Return the time after which a request that has passed `check` is late."""
        return int(self.values["auth_timestamp"]) + LATE_S

    def check(self, secrets: Sequence[str], now_s: int) -> None:
        """Raise WrongRequest unless the request is signed with one of the secrets, now. The body is checked later."""
        if self.values.get("auth_version") != "1.0":
            raise WrongRequest("auth_version must be 1.0")
        if not is_signed(secrets, self._text, self.signature):
            raise WrongRequest("auth_signature is wrong; check the secret, and that no proxy changes path or query")
        stamp = self.values.get("auth_timestamp", "")
        if not (stamp.isascii() and stamp.isdecimal() and len(stamp) < 12) or abs(now_s - int(stamp)) > LATE_S:
            raise WrongRequest(f"auth_timestamp is more than {LATE_S} s from the server's time; correct the clock")

    def check_body(self, body: bytes) -> None:
        """Raise WrongRequest unless the request is signed for this body."""
        given = self.values.get("body_md5")
        expected = md5(body, usedforsecurity=False).hexdigest()
        if (body and given is None) or (
            given is not None and not hmac.compare_digest(given.encode(), expected.encode())
        ):
            raise WrongRequest("body_md5 is not the MD5 of the body")
