"""Fake of APNs."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple
from uuid import UUID

import jwt
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fake_providers.requests import Answer, Asked
from fake_providers.server import Played
from signers import signer

KEY_ID, TEAM, TOPIC = "KEY1234567", "TEAM123456", "example.app"
MOST_BYTES = 4_096
TOKEN_S = 3_600
UPDATE_S = 1_200  # minimum time between two provider tokens


class Notified(NamedTuple):
    """An accepted notification."""

    token: str
    headers: dict[str, str]
    payload: dict[str, Any]


class PlayedApns(Played):
    """APNs server. `gone` has unregistered devices with the time of that (ms)."""

    alpn = ["h2"]  # noqa: RUF012
    taken: list[Notified]

    def __init__(self, clock: Any = None) -> None:
        super().__init__(clock)
        self.gone: dict[str, int] = {}
        self.bad: set[str] = set()
        self.most_bytes = MOST_BYTES
        self.provider_tokens: dict[str, float] = {}  # with the time of the first use

    @staticmethod
    def key() -> str:
        """Return the content of the .p8 file."""
        private = signer("ES256", "apple").private
        found: bytes = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return found.decode()

    def real(self, asked: Asked) -> Answer:
        headers = {name: value for name, value in asked.headers.items() if not name.startswith(":")}
        token = asked.path.removeprefix("/3/device/")
        error = self._token_error(headers.get("authorization", "")) or _header_error(headers, asked.path)
        if error is not None:
            return _refused(*error)
        if token in self.bad:
            return _refused(400, "BadDeviceToken")
        if token in self.gone:
            return _refused(410, "Unregistered", timestamp=self.gone[token])
        if len(asked.body) > self.most_bytes:
            return _refused(413, "PayloadTooLarge")
        payload = json.loads(asked.body)
        is_shown = headers["apns-push-type"] == "alert"
        if is_shown != bool(payload["aps"].get("alert")) or (not is_shown and headers["apns-priority"] != "5"):
            return _refused(400, "BadPriority")
        self.take(payload["greendot"]["key"], Notified(token, headers, payload))
        return Answer(200, headers={"apns-id": headers["apns-id"]})

    def _token_error(self, authorization: str) -> tuple[int, str] | None:
        token = authorization.removeprefix("bearer ")
        try:
            assert jwt.get_unverified_header(token) == {"alg": "ES256", "typ": "JWT", "kid": KEY_ID}
            options: Any = {"verify_iat": False}
            claims = jwt.decode(token, signer("ES256", "apple").public, ["ES256"], options)
            assert set(claims) == {"iss", "iat"}
            assert claims["iss"] == TEAM
        except (AssertionError, jwt.PyJWTError):
            return 403, "InvalidProviderToken"
        now = self.now_s()
        if not -60 < now - claims["iat"] < TOKEN_S:
            return 403, "ExpiredProviderToken"
        if token not in self.provider_tokens:
            if any(now - since < UPDATE_S for since in self.provider_tokens.values()):
                return 429, "TooManyProviderTokenUpdates"
            self.provider_tokens[token] = now
        return None


def _header_error(headers: dict[str, str], path: str) -> tuple[int, str] | None:
    if not re.fullmatch(r"/3/device/[0-9a-fA-F]+", path):
        return 404, "BadPath"
    if headers.get("apns-topic") != TOPIC:
        return 400, "BadTopic"
    if headers.get("apns-priority") not in ("5", "10"):
        return 400, "BadPriority"
    if headers.get("apns-push-type") not in ("alert", "background"):
        return 400, "InvalidPushType"
    if len(headers.get("apns-collapse-id", "").encode()) > 64:
        return 400, "BadCollapseId"
    if not headers.get("apns-expiration", "0").isdecimal():
        return 400, "BadExpirationDate"
    try:
        UUID(headers["apns-id"])
    except (KeyError, ValueError):
        return 400, "BadMessageId"
    return None


def _refused(status: int, reason: str, **more: Any) -> Answer:
    return Answer(status, json.dumps({"reason": reason} | more).encode())
