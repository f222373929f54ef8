"""Private keys of providers. An invalid key is reported without repeating its text."""

from __future__ import annotations

import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fake_providers import PlayedApns, PlayedFcm
from greendot.push.providers.google_auth import read_account
from greendot.push.providers.signing import BadSigningKey, ec_key, new_vapid_key, rsa_key
from signers import signer


def test_a_vapid_key_is_the_same_key_in_both_writings() -> None:
    private, public = new_vapid_key()
    number = int.from_bytes(jwt.utils.base64url_decode(private))
    key = ec.derive_private_key(number, ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    assert ec_key(private).public_point() == ec_key(pem).public_point() == public


def test_what_is_signed_is_verified_by_who_has_the_public_key() -> None:
    token = ec_key(PlayedApns.key(), "kid-1").sign({"iss": "us"})
    assert jwt.get_unverified_header(token) == {"alg": "ES256", "typ": "JWT", "kid": "kid-1"}
    assert jwt.decode(token, signer("ES256", "apple").public, ["ES256"]) == {"iss": "us"}


def other_curve() -> str:
    key = ec.generate_private_key(ec.SECP384R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    "text", ["", "secret", "secret!" * 20, "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----", "AAAA"]
)
def test_what_is_no_key_is_not_repeated(text: str) -> None:
    for load in (ec_key, rsa_key):
        with pytest.raises(BadSigningKey) as error:
            load(text)
        assert "secret" not in str(error.value)


def test_a_key_of_another_kind_is_none() -> None:
    with pytest.raises(BadSigningKey, match="not on the curve"):
        ec_key(other_curve())
    with pytest.raises(BadSigningKey, match="RSA"):
        rsa_key(PlayedApns.key())


def test_a_service_account_is_read_or_refused_with_the_missing_field() -> None:
    text = PlayedFcm().account()
    assert read_account(text).project_id == "a-project"
    for wrong in ("", "{}", "[]", text[:-5], json.dumps(json.loads(text) | {"private_key": "secret"})):
        with pytest.raises(ValueError, match=r"service account|private key") as error:
            read_account(wrong)
        assert "secret" not in str(error.value)
        assert "BEGIN" not in str(error.value)
    without = {name: value for name, value in json.loads(text).items() if name != "client_email"}
    with pytest.raises(ValueError, match="client_email"):
        read_account(json.dumps(without))
