"""Signatures of webhook requests: sender, content and time."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from greendot.protocol.webhooks import BadSignature, check_signature, sign, signature

SECRET, OTHER = "a" * 40, "b" * 40
BODY = b'{"id":"1","sent_at":2,"events":[]}'
NOW = 1_800_000_000


def test_the_signature_matches_the_documentation() -> None:
    expected = hmac.new(SECRET.encode(), b"1800000000." + BODY, hashlib.sha256).hexdigest()
    assert sign(SECRET, NOW, BODY) == expected
    assert signature([SECRET], NOW, BODY) == f"t={NOW},v1={expected}"


def test_while_a_secret_is_changed_both_are_good() -> None:
    header = signature([SECRET, OTHER], NOW, BODY)
    for secret in (SECRET, OTHER):
        check_signature(BODY, header, secret, NOW)


@pytest.mark.parametrize("off", [-300, -299.5, 0, 300])
def test_clocks_may_differ_a_little(off: float) -> None:
    check_signature(BODY, signature([SECRET], NOW, BODY), SECRET, NOW + off)


@pytest.mark.parametrize(("off", "tolerance"), [(301, 300), (-301, 300), (10**9, 300), (2, 1)])
def test_what_is_old_or_from_the_future_is_refused(off: float, tolerance: float) -> None:
    with pytest.raises(BadSignature, match="too old"):
        check_signature(BODY, signature([SECRET], NOW, BODY), SECRET, NOW + off, tolerance)


def test_another_secret_body_or_time_is_refused() -> None:
    header = signature([SECRET], NOW, BODY)
    for body, given, secret in (
        (BODY, header, OTHER),
        (BODY + b" ", header, SECRET),
        (b"", header, SECRET),
        (BODY, header.replace(str(NOW), str(NOW + 1)), SECRET),
        (BODY, header[:-1], SECRET),
        (BODY, header.upper().replace("T=", "t=").replace("V1=", "v1="), SECRET),
    ):
        with pytest.raises(BadSignature, match="the signature does not match"):
            check_signature(body, given, secret, NOW)


@pytest.mark.parametrize(
    "header",
    [
        *(
            "",
            "t=",
            "v1=abc",
            "t=1800000000",
            "t=abc,v1=d",
            "t=-5,v1=d",
            "t=1e9,v1=d",
            "t=٣,v1=d",
            "v0=abc,t=1",
            ",,,,",
        ),
        *("t=" + "9" * 30 + ",v1=d", "t=1,v1=" + "a" * 2000, "x" * 1_000_000),
    ],
)
def test_what_is_no_signature_is_refused_in_words(header: str) -> None:
    with pytest.raises(BadSignature, match="no Greendot-Signature header"):
        check_signature(BODY, header, SECRET, NOW)


@pytest.mark.parametrize("given", ["\x00", "é" * 64, "\ud800", ""])
def test_odd_characters_in_a_signature_are_refused_like_any_wrong_one(given: str) -> None:
    with pytest.raises(BadSignature):
        check_signature(BODY, f"t={NOW},v1={given}", SECRET, NOW)


def test_without_a_secret_nothing_is_believed() -> None:
    with pytest.raises(BadSignature, match="no secret"):
        check_signature(BODY, signature([""], NOW, BODY), "", NOW)
