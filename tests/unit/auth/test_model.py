from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from greendot.auth.model import (
    EVERY_TENANT,
    EVERYTHING,
    LIFTED,
    Grants,
    Revocation,
    RevocationKind,
    Revocations,
    names_of,
)

names = st.sampled_from(["a", "b"])
entries = st.builds(
    Revocation, names, st.sampled_from(["jti", "session", "user"]), names, st.integers(1, 20), st.integers(0, 20)
)


def entry(
    kind: RevocationKind, value: str, *, before: int = 0, expires_at: int = 1_000, tenant: str = "t"
) -> Revocation:
    return Revocation(tenant, kind, value, expires_at, before)


def token(user: str = "ann", *, jti: str | None = None, iat: int | None = 50, tenant: str = "t") -> Grants:
    return Grants(tenant, user, 10_000, issued_at=iat, token_id=jti)


def known(*those: Revocation) -> Revocations:
    revocations = Revocations()
    for one in those:
        assert revocations.put(one)
    return revocations


def test_all_of_a_tenant_or_of_all_tenants_is_revoked_from_a_time_on() -> None:
    revoked = Revocations()
    revoked.put(Revocation("t", "tenant", "t", 100, before=50))
    assert revoked.covers(token(iat=49))
    assert revoked.covers(token("bob", iat=None))
    assert not revoked.covers(token(iat=50))
    assert not revoked.covers(token(iat=49, tenant="t2"))
    revoked.put(Revocation(EVERY_TENANT, "tenant", EVERY_TENANT, 100, before=30))
    assert revoked.covers(token(iat=29, tenant="t2"))
    assert not revoked.covers(token(iat=30, tenant="t2"))


def test_nothing_is_revoked_at_first() -> None:
    assert not Revocations().covers(token(jti="j", iat=None), "s")


def test_a_token_is_revoked_by_its_id_in_its_tenant_only() -> None:
    revoked = known(entry("jti", "j"))
    assert revoked.covers(token(jti="j"))
    assert revoked.covers(token("bob", jti="j"))
    assert not revoked.covers(token(jti="other"))
    assert not revoked.covers(token(jti=None))
    assert not revoked.covers(token(jti="j", tenant="t2"))


def test_a_session_is_revoked_whatever_token_comes_for_it() -> None:
    revoked = known(entry("session", "s"))
    assert revoked.covers(token(iat=999), "s")
    assert not revoked.covers(token(), "other")
    assert not revoked.covers(token())
    assert not revoked.covers(token(tenant="t2"), "s")


def test_a_revocation_of_a_user_covers_tokens_issued_before_it_or_without_an_issue_time() -> None:
    revoked = known(entry("user", "ann", before=50))
    assert revoked.covers(token(iat=49))
    assert revoked.covers(token(iat=None))
    assert not revoked.covers(token(iat=50))
    assert not revoked.covers(token("bob", iat=1))
    assert not revoked.covers(token(iat=1, tenant="t2"))


def test_kinds_do_not_meet() -> None:
    revoked = known(entry("jti", "ann"), entry("session", "ann"), entry("user", "j", before=99))
    assert not revoked.covers(token("ann", jti="j", iat=1), "j")


def test_a_repeated_revocation_is_new_only_if_it_covers_more() -> None:
    revoked = known(entry("user", "ann", before=50))
    assert not revoked.put(entry("user", "ann", before=50))
    assert not revoked.put(entry("user", "ann", before=40, expires_at=900))
    assert revoked.put(entry("user", "ann", before=60, expires_at=900))
    assert revoked.covers(token(iat=59))
    revoked.expire(999)
    assert len(revoked) == 1


@given(st.lists(entries, max_size=20), st.integers(0, 21))
def test_what_has_expired_is_forgotten_and_nothing_else(those: list[Revocation], now: int) -> None:
    revoked = Revocations()
    for one in those:
        revoked.put(one)
    revoked.expire(now)
    ends: dict[object, int] = {}
    for one in those:
        ends[one.name] = max(one.expires_at, ends.get(one.name, 0))
    assert len(revoked) == sum(end > now for end in ends.values())


def test_what_a_user_was_given_before_is_found_by_the_user() -> None:
    those = entry("user", "ann", before=5)
    revoked = known(those, entry("jti", "bob"))
    assert revoked.of_user("t", "ann") == those
    assert revoked.of_user("t2", "ann") is revoked.of_user("t", "bob") is None
    assert Revocation("t", "jti", "j", 1).before == 0


def test_of_two_entries_of_a_restriction_the_one_with_the_larger_number_counts() -> None:
    known = Revocations()
    assert known.restricted_until("ban", "t", "ann", 0) == 0
    first = Revocation("t", "ban", "ann", 100, 0, 1)
    lifted = Revocation("t", "ban", "ann", 900, LIFTED, 2)
    again = Revocation("t", "ban", "ann", 50, 0, 3)
    assert known.put(first)
    assert not known.put(first)
    assert [known.restricted_until("ban", "t", "ann", now) for now in (0, 99, 100)] == [100, 100, 0]
    assert known.restricted_until("mute", "t", "ann", 0) == 0
    assert known.restricted_until("ban", "t", "bob", 0) == 0
    assert known.restricted_until("ban", "t2", "ann", 0) == 0
    assert known.put(lifted)
    assert known.restricted_until("ban", "t", "ann", 0) == 0
    assert not known.put(first), "a late announcement of the older entry"
    assert known.restricted_until("ban", "t", "ann", 0) == 0
    assert known.put(again)
    assert known.restricted_until("ban", "t", "ann", 0) == 50
    known.expire(50)
    assert (len(known), known.restricted_until("ban", "t", "ann", 0)) == (0, 0)
    assert known.put(Revocation("t", "mute", "ann", 100, 0, 4))
    known.expire(99)
    assert known.restricted_until("mute", "t", "ann", 99) == 100


def test_a_restriction_revokes_no_token() -> None:
    known = Revocations()
    known.put(Revocation("t", "ban", "ann", 100, 0, 1))
    assert not known.covers(Grants("t", "ann", 10**15))


def test_a_token_without_an_id_is_named_by_none() -> None:
    assert names_of(token()) == [("t", "user", "ann"), ("t", "tenant", "t"), EVERYTHING]
    assert names_of(token(jti="j1"))[3:] == [("t", "jti", "j1")]
