"""Encryption for browsers: equal to the example of the RFC, and readable by another implementation."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import http_ece
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from greendot.push.providers.webpush_subscription import MOST_BYTES, RECORD_BYTES, Recipient, encrypted

# RFC 8291, section 5 and appendix A.
PLAIN = b"When I grow up, I want to be a watermelon"
RECEIVER_PRIVATE = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
RECEIVER_PUBLIC = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
AUTH = "BTBZMqHH6r4Tts7J_aSIgg"
SENDER_PRIVATE = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
SALT = "DGv6ra1nlYgDCS1FRnbzlw"
BODY = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_y"
    "l95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)
KEY = ec.generate_private_key(ec.SECP256R1())
POINT = KEY.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
SECRET = bytes(range(16))


def decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def private(text: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(decoded(text)), ec.SECP256R1())


def recipient() -> Recipient:
    return Recipient(urlsafe_b64encode(POINT).decode(), urlsafe_b64encode(SECRET).decode())


def test_the_published_example_is_what_comes_out() -> None:
    found = encrypted(PLAIN, Recipient(RECEIVER_PUBLIC, AUTH), key=private(SENDER_PRIVATE), salt=decoded(SALT))
    assert found == decoded(BODY)
    assert http_ece.decrypt(found, private_key=private(RECEIVER_PRIVATE), auth_secret=decoded(AUTH)) == PLAIN


@given(text=st.binary(max_size=MOST_BYTES))
def test_another_implementation_reads_it(text: bytes) -> None:
    found = encrypted(text, recipient())
    assert http_ece.decrypt(found, private_key=KEY, auth_secret=SECRET) == text


def test_the_longest_text_is_as_long_as_every_service_takes_it() -> None:
    assert len(encrypted(b"x" * MOST_BYTES, recipient())) == RECORD_BYTES


def test_no_two_messages_share_a_key_or_a_salt() -> None:
    one, other = encrypted(PLAIN, recipient()), encrypted(PLAIN, recipient())
    assert one[:16] != other[:16]
    assert one[21:86] != other[21:86]


@pytest.mark.parametrize(
    ("p256dh", "auth"),
    [
        ("", AUTH),
        (RECEIVER_PUBLIC, ""),
        (RECEIVER_PUBLIC[:-4], AUTH),
        (RECEIVER_PUBLIC, AUTH + "AAAA"),
        ("B" + "A" * 86, AUTH),  # not on the curve
        ("\u00fc" * 87, AUTH),
        ("A", AUTH),
    ],
)
def test_keys_that_are_none_are_refused(p256dh: str, auth: str) -> None:
    with pytest.raises(ValueError, match="subscription"):
        Recipient(p256dh, auth)
