"""Fake of a push service with its browsers. An independent implementation decrypts the payloads."""

from __future__ import annotations

import json
import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any, NamedTuple

import http_ece
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fake_providers.requests import Answer, Asked
from fake_providers.server import Played

MOST_BYTES = 4_096
DAY_S = 86_400
URGENCIES = ("very-low", "low", "normal", "high")


class VapidKey(NamedTuple):
    """A key of a sender, as an operator keeps it and as browsers subscribe with it."""

    file: Path
    public: str


def vapid_key(folder: Path) -> VapidKey:
    key, file = ec.generate_private_key(ec.SECP256R1()), folder / "vapid.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    return VapidKey(file, _text(key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)))


class Delivered(NamedTuple):
    """A payload as the browser decrypted it."""

    path: str
    headers: dict[str, str]
    content: dict[str, Any]


class _Browser(NamedTuple):
    key: ec.EllipticCurvePrivateKey
    auth: bytes
    sender: str  # the public key of the permitted sender


class PlayedWebPush(Played):
    """Push service. Paths in `gone` are unsubscribed."""

    taken: list[Delivered]

    def __init__(self, clock: Any = None) -> None:
        super().__init__(clock)
        self.gone: set[str] = set()
        self.most_bytes = MOST_BYTES
        self._browsers: dict[str, _Browser] = {}

    def subscribe(self, sender: str) -> str:
        """Return a browser's subscription as JSON. `sender` is the public key of its application server."""
        browser = _Browser(ec.generate_private_key(ec.SECP256R1()), os.urandom(16), sender)
        path = f"/push/{len(self._browsers)}-secret"
        self._browsers[path] = browser
        point = browser.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        keys = {"p256dh": _text(point), "auth": _text(browser.auth)}
        return json.dumps({"endpoint": f"{self.url}{path}", "expirationTime": None, "keys": keys})

    def real(self, asked: Asked) -> Answer:
        browser = self._browsers.get(asked.path)
        if browser is None:
            return Answer(404)
        if asked.path in self.gone:
            return Answer(410)
        if not self._is_from(browser.sender, asked.headers.get("authorization", "")):
            return Answer(403)
        if len(asked.body) > self.most_bytes:
            return Answer(413)
        headers = asked.headers
        topic = headers.get("topic", "t")
        is_good = (
            headers.get("ttl", "").isdecimal()
            and headers.get("content-encoding") == "aes128gcm"
            and headers.get("urgency", "normal") in URGENCIES
            and re.fullmatch(r"[A-Za-z0-9_-]{1,32}", topic)
        )
        if not is_good:
            return Answer(400)
        text = http_ece.decrypt(asked.body, private_key=browser.key, auth_secret=browser.auth, version="aes128gcm")
        content = json.loads(text)
        self.take(content["key"], Delivered(asked.path, headers, content))
        return Answer(201, headers={"location": f"{self.url}/message/{len(self.taken)}"})

    def _is_from(self, sender: str, authorization: str) -> bool:
        """Verify the VAPID header (RFC 8292)."""
        found = re.fullmatch(r"vapid t=([^,\s]+), k=([^,\s]+)", authorization)
        if found is None or found[2] != sender:
            return False
        point = urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4))
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        try:
            claims = jwt.decode(found[1], key, ["ES256"], {"verify_exp": False}, audience=self.url)
        except jwt.PyJWTError:
            return False
        return self.now_s() < claims["exp"] <= self.now_s() + DAY_S and claims["sub"].startswith("mailto:")


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
