"""Fake of FCM, and of Google's token server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

import jwt
import msgspec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec import Meta, Struct

from fake_providers.requests import Answer, Asked
from fake_providers.server import Played
from signers import signer

PROJECT = "a-project"
EMAIL = "greendot@a-project.iam.example"
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
KEY_ID = "key-1"
MOST_BYTES = 4_096


class Shown(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Field `notification`."""

    title: str | None = None
    body: str | None = None


class OnAndroid(Struct, forbid_unknown_fields=True):
    """Field `android.notification`."""

    tag: str


class Android(Struct, forbid_unknown_fields=True):
    """Field `android`."""

    priority: Literal["NORMAL", "HIGH"]
    ttl: Annotated[str, Meta(pattern=r"^[0-9]+s$")]
    collapse_key: str | None = None
    notification: OnAndroid | None = None


class Message(Struct, forbid_unknown_fields=True):
    """Field `message`."""

    token: str
    data: dict[str, str]
    android: Android
    notification: Shown | None = None


class Request(Struct, forbid_unknown_fields=True):
    """Body of a request."""

    message: Message


class PlayedFcm(Played):
    """FCM server. `gone` has unregistered devices. Tokens that begin with `bad` are invalid."""

    alpn = ["h2", "http/1.1"]  # noqa: RUF012
    taken: list[Message]

    def __init__(self, clock: Any = None) -> None:
        super().__init__(clock)
        self.gone: set[str] = set()
        self.granted: dict[str, float] = {}  # access tokens, with the seconds at which they expire
        self.lives_s = 3_600
        self.grants: list[Answer | str] = []  # answers instead of tokens, for the next requests
        self.is_asked: Callable[[], None] = lambda: None  # called for each token request

    def account(self) -> str:
        """Return the file of the service account."""
        pem = signer("RS256", "google").private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return json.dumps(
            {
                "type": "service_account",
                "project_id": PROJECT,
                "private_key_id": KEY_ID,
                "private_key": pem.decode(),
                "client_email": EMAIL,
                "client_id": "1",
                "token_uri": f"{self.url}/token",
            }
        )

    def is_scripted(self, asked: Asked) -> bool:
        return asked.path != "/token"

    def does(self, asked: Asked) -> Answer | str:
        if asked.path != "/token":
            return super().does(asked)
        self.is_asked()
        return self.grants.pop(0) if self.grants else self._grant(asked)

    def real(self, asked: Asked) -> Answer:
        if asked.path != f"/v1/projects/{PROJECT}/messages:send":
            return Answer(404)
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if self.granted.get(token, 0) <= self.now_s():
            return refusal(401, "UNAUTHENTICATED", message="Request had invalid authentication credentials.")
        try:
            message = msgspec.json.decode(asked.body, type=Request).message
        except msgspec.MsgspecError as error:
            return refusal(400, "INVALID_ARGUMENT", field="message", message=str(error))
        if message.token.startswith("bad"):
            return refusal(
                400, "INVALID_ARGUMENT", message="The registration token is not a valid FCM registration token"
            )
        if message.token in self.gone:
            return refusal(404, "NOT_FOUND", "UNREGISTERED", message="Requested entity was not found.")
        if len(json.dumps(message.data)) > MOST_BYTES:
            return refusal(400, "INVALID_ARGUMENT", message="Message is too big")
        self.take(message.data["key"], message)
        return Answer.json(200, {"name": f"projects/{PROJECT}/messages/{len(self.taken)}"})

    def _grant(self, asked: Asked) -> Answer:
        form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        assert asked.headers["content-type"] == "application/x-www-form-urlencoded", asked.headers
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer", form["grant_type"]
        assertion = form["assertion"]
        assert jwt.get_unverified_header(assertion) == {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        options: Any = {"verify_exp": False, "verify_iat": False, "verify_aud": False}
        claims = jwt.decode(assertion, signer("RS256", "google").public, ["RS256"], options)
        now = self.now_s()
        is_good = (
            (claims["iss"], claims["scope"], claims["aud"]) == (EMAIL, SCOPE, f"{self.url}/token")
            and abs(claims["iat"] - now) < 60
            and claims["exp"] - claims["iat"] <= 3_600
        )
        if not is_good:
            return Answer.json(400, {"error": "invalid_grant", "error_description": "Invalid JWT"})
        token = f"ya29.secret-{len(self.granted)}"
        self.granted[token] = now + self.lives_s
        return Answer.json(200, {"access_token": token, "expires_in": self.lives_s - 1, "token_type": "Bearer"})


def refusal(
    status: int, kind: str, code: str | None = None, *, field: str | None = None, message: str = "", **headers: str
) -> Answer:
    """Make an error in the format of Google's services."""
    details: list[dict[str, Any]] = []
    if field is not None:
        violation = {"field": field, "description": message}
        details = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}]
    elif code is not None:
        details = [{"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code}]
    error = {"code": status, "message": message, "status": kind, "details": details}
    return Answer.json(status, {"error": error}, **{name.replace("_", "-"): value for name, value in headers.items()})
