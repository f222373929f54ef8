"""Encryption of a Web Push message for one browser (RFC 8291): the push service carries the message and cannot read it.

An ephemeral key and the browser's key make a shared secret, mixed with the browser's authentication secret. The result
and a salt give the key and the nonce of one record in `aes128gcm` (RFC 8188).
"""

from __future__ import annotations

import hmac
import os
from base64 import urlsafe_b64decode
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec import Struct

from greendot.protocol.decoding import decoder

RECORD_BYTES = 4_096  # size that every push service must accept
OVERHEAD_BYTES = 16 + 4 + 1 + 65 + 1 + 16  # salt, size, length of the key, key; end of the record; authentication
MOST_BYTES = RECORD_BYTES - OVERHEAD_BYTES
_POINT_BYTES = 65
_SECRET_BYTES = 16
_LAST_RECORD = b"\x02"


class Recipient:
    """Keys of a browser, decoded. Raise ValueError if they are not valid."""

    def __init__(self, p256dh: str, auth: str) -> None:
        self.point, self.secret = _decoded(p256dh), _decoded(auth)
        if len(self.point) != _POINT_BYTES or len(self.secret) != _SECRET_BYTES:
            raise ValueError("the subscription's keys have the wrong length")
        try:
            self.key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), self.point)
        except ValueError:
            raise ValueError("the subscription's key `p256dh` is not a point on P-256") from None


def encrypted(
    text: bytes, to: Recipient, *, key: ec.EllipticCurvePrivateKey | None = None, salt: bytes | None = None
) -> bytes:
    """Return the body of a request.

    Key and salt are new for each message. They are passed only to check published examples.
    """
    key = key or ec.generate_private_key(ec.SECP256R1())
    salt = salt or os.urandom(16)
    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    context = key.exchange(ec.ECDH(), to.key)
    material = _expanded(to.secret, context, b"WebPush: info\0" + to.point + point, 32)
    content_key = _expanded(salt, material, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _expanded(salt, material, b"Content-Encoding: nonce\0", 12)
    sealed = AESGCM(content_key).encrypt(nonce, text + _LAST_RECORD, None)
    return b"".join((salt, RECORD_BYTES.to_bytes(4), bytes((len(point),)), point, sealed))


def _expanded(salt: bytes, material: bytes, info: bytes, size: int) -> bytes:
    """Derive a key by HKDF with SHA-256, for at most one block."""
    extracted = hmac.digest(salt, material, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")[:size]


def _decoded(text: str) -> bytes:
    """Decode base64, in the URL-safe form of browsers or in the standard form."""
    try:
        return urlsafe_b64decode(
            text.rstrip("=").replace("+", "-").replace("/", "_") + "=" * (-len(text.rstrip("=")) % 4)
        )
    except (ValueError, UnicodeError):
        raise ValueError("the subscription's keys are not base64") from None


MOST_ENDPOINT = 2_000  # characters


class Keys(Struct, frozen=True):
    """Keys of a browser, in URL-safe base64."""

    p256dh: str
    auth: str


class Subscription(Struct, frozen=True):
    """JSON form of a browser's `PushSubscription`, which is the token of a device."""

    endpoint: str
    keys: Keys


decode_subscription = decoder(Subscription)


def read_subscription(token: str) -> tuple[Subscription, Recipient]:
    """Decode and check a token. Raise ValueError, without any content of the token."""
    try:
        found = decode_subscription(token)
    except msgspec.DecodeError:
        raise ValueError(
            "a Web Push token must be a PushSubscription in JSON, with endpoint, keys.p256dh and keys.auth"
        ) from None
    if len(found.endpoint) > MOST_ENDPOINT or not (found.endpoint.isascii() and found.endpoint.isprintable()):
        raise ValueError("the subscription's endpoint is not a URL")
    try:
        parts = urlsplit(found.endpoint)
        is_good = parts.scheme == "https" and parts.hostname and parts.username is None and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or set(found.endpoint) & {" ", "\\", "#"}:
        raise ValueError("the subscription's endpoint is not an https URL of a push service")
    return found, Recipient(found.keys.p256dh, found.keys.auth)
