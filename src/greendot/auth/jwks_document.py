"""A document with keys (RFC 7517), as identity providers publish them."""

from __future__ import annotations

from typing import Any

import jwt
import msgspec
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from msgspec import Struct

from greendot.auth.keyring import BadKey, Key, checked
from greendot.protocol.decoding import decode

MOST_KEYS = 100
# By kind and curve: the algorithm, what reads the key, and which members it is made of. Private ones are never read.
_KINDS: dict[tuple[str, str], tuple[str, Any, tuple[str, ...]]] = {
    ("RSA", ""): ("RS256", RSAAlgorithm, ("n", "e")),
    ("EC", "P-256"): ("ES256", ECAlgorithm, ("crv", "x", "y")),
    ("OKP", "Ed25519"): ("EdDSA", OKPAlgorithm, ("crv", "x")),
}


class _Document(Struct):
    keys: list[Any]


def read_keys(document: bytes) -> list[Key]:
    """The keys that verify tokens; a provider may have others, which are left out. ValueError if there are none."""
    try:
        found = decode(document, _Document).keys
    except msgspec.DecodeError:
        raise ValueError('what it answers is not a set of keys ({"keys": [...]})') from None
    if len(found) > MOST_KEYS:
        raise ValueError(f"it has more than {MOST_KEYS} keys")
    keys = [key for jwk in found if isinstance(jwk, dict) and (key := _key(jwk)) is not None]
    if not keys:
        raise ValueError("it has no key for RS256, ES256 or EdDSA")
    return keys


def _key(jwk: dict[str, Any]) -> Key | None:
    kid, curve = jwk.get("kid"), jwk.get("crv", "") if jwk.get("kty") != "RSA" else ""
    if not isinstance(curve, str) or not isinstance(kid, str | None) or not _is_for_signatures(jwk):
        return None
    alg, reader, members = _KINDS.get((str(jwk.get("kty")), curve), ("", None, ()))
    if not alg or jwk.get("alg", alg) != alg:
        return None
    try:
        public = {"kty": jwk["kty"]} | {member: jwk[member] for member in members}
        return Key(alg, checked(alg, reader.from_jwk(public)), kid)
    except (BadKey, jwt.InvalidKeyError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def _is_for_signatures(jwk: dict[str, Any]) -> bool:
    operations = jwk.get("key_ops", ["verify"])
    return jwk.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
