"""Key documents: usable keys are read, and all other keys are ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from greendot.auth.jwks import MOST_KEYS, read_keys
from signers import PUBLIC, signer


def document(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


GOOD = signer("EdDSA").jwk("good")


def names(*keys: Any) -> list[str | None]:
    """Return the names of the usable keys. The document also contains a key that is always usable."""
    found = [key.kid for key in read_keys(document(*keys, GOOD))]
    assert found.pop() == "good"
    return found


@pytest.mark.parametrize("alg", PUBLIC)
def test_a_key_is_read_and_has_its_algorithm(alg: str) -> None:
    for jwk in (signer(alg).jwk("k"), signer(alg).jwk("k", use="sig", alg=alg, key_ops=["verify"], x5t="…")):
        (key,) = read_keys(document(jwk))
        assert (key.kid, key.alg, key.material) == ("k", alg, signer(alg).public)


def test_a_key_may_be_without_a_name() -> None:
    assert names(signer("RS256").jwk()) == [None]


@pytest.mark.parametrize(
    "jwk",
    [
        {"kty": "oct", "k": "c2VjcmV0" * 10, "kid": "x", "alg": "HS256"},
        signer("RS256").jwk("x", use="enc"),
        signer("RS256").jwk("x", alg="RS512"),
        signer("RS256").jwk("x", alg="HS256"),
        signer("RS256").jwk("x", alg=None),
        signer("RS256").jwk("x", key_ops=["encrypt"]),
        signer("RS256").jwk("x", key_ops="verify"),
        signer("RS256").jwk("x", n="!"),
        signer("RS256").jwk("x", n=5),
        signer("RS256").jwk("x", e="AA"),
        signer("RS256").jwk("x", e="_" * 300),
        signer("RS256").jwk(5),  # type: ignore[arg-type]
        signer("ES256").jwk("x", crv="P-384"),
        signer("ES256").jwk("x", crv=["P-256"]),
        signer("ES256").jwk("x", x="AAAA"),
        signer("ES256").jwk("x", y=signer("ES256").jwk()["x"]),
        signer("EdDSA").jwk("x", crv="X25519"),
        signer("EdDSA").jwk("x", x="AAAA"),
        {k: v for k, v in signer("EdDSA").jwk("x").items() if k != "x"},
        json.loads(RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key())) | {"kid": "x"},
        json.loads(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key())) | {"kid": "x"},
        {"kid": "x"},
        {"kty": 7},
        {},
        [],
        "x",
        None,
    ],
    ids=lambda jwk: json.dumps(jwk)[:50],
)
def test_what_cannot_verify_tokens_is_left_out(jwk: Any) -> None:
    assert names(jwk) == []
    with pytest.raises(ValueError, match="no key"):
        read_keys(document(jwk))


def test_of_a_private_key_only_the_public_part_is_read() -> None:
    private = json.loads(RSAAlgorithm.to_jwk(signer("RS256").private)) | {"kid": "k"}
    private.pop("key_ops")
    (key,) = read_keys(document(private))
    assert key.material == signer("RS256").public


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b"\xff",
        b"[" * 100_000,
        b'{"keys":' + b"[" * 5_000,
    ],
    ids=repr,
)
def test_what_is_no_document_of_keys_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_keys(text)


def test_a_key_document_with_too_many_keys_is_refused() -> None:
    assert len(read_keys(document(*[GOOD] * MOST_KEYS))) == MOST_KEYS
    with pytest.raises(ValueError, match="more than"):
        read_keys(document(*[GOOD] * (MOST_KEYS + 1)))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(["RSA", "EC", "OKP", "P-256", "sig"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
members = st.sampled_from(["kty", "kid", "crv", "x", "y", "n", "e", "alg", "use", "key_ops", "d"])


@given(st.sampled_from(PUBLIC), st.dictionaries(members, values, max_size=4))
def test_a_key_with_anything_in_it_is_read_or_left_out(alg: str, changed: dict[str, Any]) -> None:
    for key in read_keys(document(signer(alg).jwk("k") | changed, GOOD)):
        assert key.alg in PUBLIC
