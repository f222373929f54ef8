"""Expiry of a token, and the time to refresh it."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import pytest

from greendot.auth.tokens import Tokens
from greendot.client.expiry import expires_at, refresh_in


def a_token(payload: object) -> str:
    return f"e30.{urlsafe_b64encode(json.dumps(payload).encode()).decode().rstrip('=')}.sig"


def test_the_end_of_a_token_is_read_from_it() -> None:
    made = Tokens("a secret for tests, long enough to be taken").make("alice", 1_000_000, 3600)
    assert expires_at(made) == 1_000_000 + 3_600_000
    assert expires_at(a_token({"exp": 1.5})) == 1500
    assert expires_at(a_token({"exp": 0.5})) == 500
    assert expires_at(a_token({"exp": 99_999_999_999})) == 99_999_999_999_000


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "opaque",
        "a.b",
        "..",
        "a.!!!.c",
        "a.b.c.d",
        a_token({}),
        a_token([]),
        a_token({"exp": "soon"}),
        a_token({"exp": -1}),
        a_token({"exp": 0}),
        a_token({"exp": 1e11}),
        a_token({"exp": 1}) + ".more",
        a_token({"exp": 1e300}),
        "e30." + urlsafe_b64encode(b"[" * 100_000).decode() + ".x",
        "ä.ö.ü",
    ],
)
def test_a_token_without_a_valid_expiry_has_no_expiry_time(odd: str) -> None:
    assert expires_at(odd) is None


@pytest.mark.parametrize(
    ("left", "jitter", "wait"),
    [
        (3600, 0.0, 3540),  # a minute early
        (3600, 1.0, 3510),
        (100, 0.0, 80),  # a fifth early
        (100, 1.0, 70),
        (5, 0.0, 4),
        (0.5, 0.0, 1),  # at least one second, so that refreshes do not loop
    ],
)
def test_a_token_is_replaced_before_it_ends_and_not_by_all_at_once(left: float, jitter: float, wait: float) -> None:
    assert refresh_in(left, jitter) == pytest.approx(wait)
