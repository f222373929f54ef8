"""Facts about a PostgreSQL server."""

from __future__ import annotations

from greendot.store.postgres.facts import postgres_facts


async def test_a_short_statement_timeout_of_the_login_is_reported_and_ends_no_query(postgres: str) -> None:
    facts = await postgres_facts(f"{postgres}{'&' if '?' in postgres else '?'}statement_timeout=1")
    assert (facts.trouble, facts.statement_timeout_ms) == ("", 1)
    assert facts.version > 0
