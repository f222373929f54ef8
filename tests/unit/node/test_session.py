"""Sessions: grace after a disconnection, and fields in a log line."""

from __future__ import annotations

from greendot.auth.model import Grants
from greendot.node.session import Disconnection, Session, log_fields
from greendot.protocol.commands import ClientInfo


def session(user: str = "ann", tenant: str = "acme") -> Session:
    return Session("n1-abc", Grants(tenant, user, expires_at=1), "phone", ClientInfo())


def test_a_grace_shrinks_and_the_silence_grows_as_time_passes() -> None:
    left = Disconnection(at=100.0, grace_ms=30_000, silent_ms=500)
    assert left.since(100.0) == (30_000, 500)
    assert left.since(112.25) == (17_750, 12_750)


def test_a_grace_that_is_over_is_zero_and_never_negative() -> None:
    left = Disconnection(at=100.0, grace_ms=2_000, silent_ms=0)
    assert left.since(102.0) == (0, 2_000)
    assert left.since(500.0) == (0, 400_000)


def test_a_grace_is_prolonged_to_the_least_time_and_the_silence_is_kept() -> None:
    left = Disconnection(at=100.0, grace_ms=30_000, silent_ms=500)
    longer = left.with_least(125.0, 10_000)
    assert longer.since(125.0) == (10_000, 25_500)
    assert longer.since(135.0) == (0, 35_500)


def test_a_grace_that_lasts_long_enough_stays_as_it_is() -> None:
    left = Disconnection(at=100.0, grace_ms=30_000, silent_ms=0)
    assert left.with_least(120.0, 10_000) is left
    assert left.with_least(120.001, 10_000) is not left


def test_a_short_grace_is_not_made_longer_than_it_was_at_first() -> None:
    assert Disconnection(100.0, 2_000, 0).with_least(150.0, 10_000).since(150.0) == (2_000, 50_000)
    assert Disconnection(100.0, 0, 0).with_least(150.0, 10_000).since(150.0)[0] == 0


def test_the_log_fields_of_a_session_name_its_user_and_tenant() -> None:
    assert log_fields(session()) == {"session": "n1-abc", "user": "ann", "tenant": "acme"}
    assert log_fields(None) == {"session": None}


def test_a_session_has_the_key_of_its_token() -> None:
    assert (session("bob", "other").key, session("bob", "other").tenant) == (("other", "bob"), "other")
