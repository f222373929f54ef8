"""Text of an API key, and the scopes of its bearer."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greendot.auth.model import SCOPES, Caller, KeyScope, hash_of, parse, text_of
from greendot.ids import new_key_id, new_key_secret

ID, SECRET = "0123456789ab", "S" * 43


def test_a_key_is_taken_apart_as_it_was_put_together() -> None:
    id, secret = new_key_id(), new_key_secret()
    assert parse(text_of(id, secret)) == (id, secret)
    assert new_key_secret() != secret


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gd_",
        "gd__",
        f"gd_{ID}",
        f"gd_{ID}_",
        f"gd_{ID}_{SECRET}x",
        f"gd_{ID}_{SECRET[1:]}",
        f"gd_{ID}_{SECRET}\n",
        f" gd_{ID}_{SECRET}",
        f"GD_{ID}_{SECRET}",
        f"gd_{ID[:-1]}٣_{SECRET}",
        f"gd_{ID[:-1]}\0_{SECRET}",
        f"gd_{ID[:-1]}'_{SECRET}",
        f"gd_{ID}_{SECRET}" * 10_000,
    ],
    ids=lambda text: text[:30],
)
def test_what_is_not_the_text_of_a_key_is_not_looked_for(text: str) -> None:
    assert parse(text) is None


@given(st.text())
def test_any_text_is_taken_apart_or_refused(text: str) -> None:
    assert parse(text) is None


def test_a_hash_does_not_contain_its_secret_and_differs_between_secrets() -> None:
    assert SECRET.encode() not in hash_of(SECRET)
    assert hash_of(SECRET) == hash_of(SECRET) != hash_of(SECRET[:-1] + "s")


@pytest.mark.parametrize("scope", get_args(KeyScope))
def test_a_scope_grants_itself_alone(scope: KeyScope) -> None:
    granted = {other for other in get_args(KeyScope) if Caller("acme", frozenset({scope})).may(other)}
    if scope == "admin":
        assert granted == {*SCOPES}
    elif scope == "operator":
        assert granted == {"operator", "stats:read"}
    else:
        assert granted == {scope}


def test_who_has_nothing_may_nothing() -> None:
    assert not any(Caller("acme", frozenset()).may(scope) for scope in get_args(KeyScope))
