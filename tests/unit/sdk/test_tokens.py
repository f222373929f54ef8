"""Tokens that an app makes for its users, as a server reads them."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from greendot import Server
from greendot.auth.tokens import Tokens

SECRET = "a secret for tests, long enough to be taken"


def server(secret: str = SECRET) -> Server:
    return Server("http://127.0.0.1:1", secret=secret)


def test_a_token_grants_what_was_asked_for() -> None:
    now = round(time.time() * 1000)
    token = server().token(
        "alice", name="Alice", rooms=("team-*",), watch=["b*"], send=False, ttl=timedelta(minutes=5), tenant="acme"
    )
    grants = Tokens(SECRET).read(token, now)
    assert (grants.user, grants.name, grants.tenant, grants.send) == ("alice", "Alice", "acme", False)
    assert (grants.rooms, grants.watch) == (("team-*",), ("b*",))
    assert 298_000 < grants.expires_at - now <= 301_000
    assert abs((grants.issued_at or 0) - now) <= 1_000


def test_the_time_of_issue_has_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A revocation covers the tokens before its millisecond, and not those issued later in the same second."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.4567)
    grants = Tokens(SECRET).read(server().token("alice"), 1_700_000_000_457)
    assert grants.issued_at == 1_700_000_000_457


def test_each_token_can_be_revoked_by_a_name_of_its_own() -> None:
    now, found = round(time.time() * 1000), Tokens(SECRET).read
    first, second = (found(server().token("alice"), now) for _ in range(2))
    assert first.token_id
    assert first.token_id != second.token_id
    assert found(server().token("alice", jti="7f3a"), now).token_id == "7f3a"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"user": "a b"}, "user is not a valid id"),
        ({"user": ""}, "user is not a valid id"),
        ({"user": 7}, "user is not a valid id"),
        ({"user": "a", "ttl": 0}, "ttl is how long"),
        ({"user": "a", "ttl": -1}, "ttl is how long"),
        ({"user": "a", "ttl": float("nan")}, "ttl is how long"),
        ({"user": "a", "ttl": float("inf")}, "ttl is how long"),
        ({"user": "a", "rooms": ["a/b"]}, "rooms"),
        ({"user": "a", "rooms": "lobby"}, "rooms"),
        ({"user": "a", "name": "x" * 201}, "name"),
        ({"user": "a", "tenant": "*"}, "tenant"),
    ],
)
def test_what_no_server_would_take_is_refused_where_it_is_made(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        server().token(**arguments)


@pytest.mark.parametrize("secret", ["", "short"])
def test_without_a_good_secret_there_are_no_tokens(secret: str) -> None:
    with pytest.raises(ValueError, match="give Server the secret") as caught:
        server(secret).token("alice")
    assert "short" not in str(caught.value)
