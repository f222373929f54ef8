"""Keys that verify tokens. Each key has one algorithm, whatever a token's header states.

If a token's `alg` decided, a public key could be used as the secret of an HMAC, and anyone could sign.
"""

from __future__ import annotations

import hmac
from functools import lru_cache
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate
from jwt.algorithms import get_default_algorithms
from msgspec import Struct

HASHES = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}
PUBLIC = ("RS256", "ES256", "EdDSA")  # algorithms whose keys need not be secret
ALGORITHMS = (*HASHES, *PUBLIC)
SHORTEST = {"HS256": 32, "HS384": 48, "HS512": 64}  # bytes of a secret: as many as its hash has (RFC 7518 3.2)
_RSA_BITS = range(2048, 8193)  # shorter keys can be broken, longer ones are slow
_MOST_EXPONENT = 1 << 32  # larger exponents are slow
_verifiers = get_default_algorithms()


class VerificationKey(Struct, frozen=True, eq=False):
    """Key that verifies tokens. `material` is a secret or a public key that fits `alg`."""

    alg: str
    material: Any
    kid: str | None = None  # None: for tokens that name no key, or an unknown one
    tenant: str | None = None  # the only tenant of its tokens; None: any
    retired: bool = False  # its tokens are refused
    not_after: int | None = None  # milliseconds UTC: its tokens expire by then

    def verifies(self, signed: bytes, signature: bytes) -> bool:
        name = HASHES.get(self.alg)
        if name is not None:
            keyed = _keyed(self.material, name).copy()
            keyed.update(signed)
            return hmac.compare_digest(keyed.digest(), signature)
        return _verifiers[self.alg].verify(signed, self.material, signature)


@lru_cache(maxsize=256)
def _keyed(secret: bytes, name: str) -> hmac.HMAC:
    """Return a hash that has read the secret. A copy of it takes less time than a new one."""
    return hmac.new(secret, digestmod=name)


class BadKey(ValueError):
    """Text that cannot be a key, with the reason. The message never repeats the text."""


def secret_of(alg: str, secret: bytes) -> bytes:
    """Return the secret if it is long enough and no PEM. Raise BadKey with the reason otherwise."""
    if secret.lstrip().startswith(b"-----BEGIN"):
        raise BadKey(f"{alg} needs a secret, but this is a PEM key, which may be public")
    if len(secret) < SHORTEST[alg]:
        raise BadKey(
            f"{alg} needs a secret of at least {SHORTEST[alg]} characters. Generate one with: openssl rand -hex "
            f"{SHORTEST[alg]}"
        )
    return secret


def public_key_of(alg: str, pem: bytes) -> Any:
    """Return the public key in `pem`, plain or in a certificate. Raise BadKey with the reason otherwise."""
    if b"PRIVATE KEY" in pem:
        raise BadKey(
            "this is a private key, but the server needs the public key. Extract it with: openssl pkey -pubout"
        )
    try:
        if b"BEGIN CERTIFICATE" in pem:
            return checked(alg, load_pem_x509_certificate(pem).public_key())
        return checked(alg, load_pem_public_key(pem))
    except (ValueError, UnsupportedAlgorithm) as error:
        if isinstance(error, BadKey):
            raise
        raise BadKey("this is not a public key in PEM format (-----BEGIN PUBLIC KEY-----)") from None


def checked(alg: str, key: Any) -> Any:
    """Return `key` if it fits `alg`. Raise BadKey with the reason otherwise."""
    match alg:
        case "RS256":
            if not isinstance(key, RSAPublicKey):
                raise BadKey("RS256 needs an RSA key")
            if key.key_size not in _RSA_BITS:
                raise BadKey(
                    f"an RSA key must have {_RSA_BITS[0]} to {_RSA_BITS[-1]} bits, but this key has {key.key_size}"
                )
            if key.public_numbers().e > _MOST_EXPONENT:
                raise BadKey("the exponent of the RSA key is too large")
        case "ES256":
            if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
                raise BadKey("ES256 needs a key on curve P-256")
        case "EdDSA":
            if not isinstance(key, Ed25519PublicKey):
                raise BadKey("EdDSA needs an Ed25519 key")
    return key


class Keyring:
    """Keys by name and algorithm."""

    def __init__(self, keys: list[VerificationKey]) -> None:
        self._named = {(key.kid, key.alg): key for key in reversed(keys) if key.kid is not None}  # the first counts
        self._nameless = [key for key in keys if key.kid is None]
        self._kids = {key.kid for key in keys if key.kid is not None}
        self.algorithms = frozenset(key.alg for key in keys)

    def knows(self, kid: str | None) -> bool:
        return kid in self._kids

    def fitting(self, kid: str | None, alg: str) -> list[VerificationKey]:
        """Return the keys that may have signed a token with this header.

        A token that names no key may belong to the only key there is.
        """
        if kid is not None and (key := self._named.get((kid, alg))) is not None:
            return [key]
        if kid in self._kids:
            return []  # the key exists, but for another algorithm
        nameless = [key for key in self._nameless if key.alg == alg]
        if nameless or kid is not None:
            return nameless
        named = [key for key in self._named.values() if key.alg == alg]
        return named if len(named) == 1 else []
