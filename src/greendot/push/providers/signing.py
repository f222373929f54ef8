"""Tokens that identify the sender to a provider, signed with the tenant's key."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key


class BadSigningKey(ValueError):
    """Error for a text that is not a key of the needed form. The message has no content of the text."""


class SigningKey:
    """Key that signs claims."""

    def __init__(self, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, kid: str | None = None) -> None:
        self._key = key
        self._alg = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        self._headers = None if kid is None else {"kid": kid}

    def sign(self, claims: Mapping[str, Any]) -> str:
        return jwt.encode({**claims}, self._key, self._alg, self._headers)

    def public_point(self) -> str:
        """Return the public point of an elliptic key as browsers need it: uncompressed, in URL-safe base64."""
        point = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return urlsafe_b64encode(point).decode().rstrip("=")


def rsa_key(pem: str, kid: str | None = None) -> SigningKey:
    """Return the RSA key of a Google service account. Raise BadSigningKey if the text is not valid."""
    return SigningKey(_loaded(pem, rsa.RSAPrivateKey, "an RSA private key in PEM"), kid)


def ec_key(text: str, kid: str | None = None) -> SigningKey:
    """Return a key on P-256: from PEM (Apple's .p8), or from its 32 bytes in URL-safe base64, as for VAPID keys.

    Raise BadSigningKey if the text is not valid.
    """
    if "-----BEGIN" in text:
        found = _loaded(text, ec.EllipticCurvePrivateKey, "a private key on P-256 in PEM")
        if not isinstance(found.curve, ec.SECP256R1):
            raise BadSigningKey("the key is not on the curve P-256")
        return SigningKey(found, kid)
    try:
        number = urlsafe_b64decode(text.strip() + "=" * (-len(text.strip()) % 4))
        if len(number) != 32:
            raise ValueError
        return SigningKey(ec.derive_private_key(int.from_bytes(number), ec.SECP256R1()), kid)
    except ValueError:
        raise BadSigningKey("not a private key: give P-256 in PEM, or 32 bytes in URL-safe base64") from None


def new_vapid_key() -> tuple[str, str]:
    """Make a key pair; return the private key and the public key, both in URL-safe base64."""
    key = ec.generate_private_key(ec.SECP256R1())
    number = key.private_numbers().private_value.to_bytes(32)
    return urlsafe_b64encode(number).decode().rstrip("="), SigningKey(key).public_point()


def _loaded(pem: str, kind: type[Any], name: str) -> Any:
    try:
        found = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError):
        found = None
    if not isinstance(found, kind):
        raise BadSigningKey(f"not {name}")
    return found
