"""Diagnosis of a set-up: all findings about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from greendot.config import Settings
from greendot.ops.doctor import access, redis, service, store
from greendot.ops.doctor.finding import Finding, Findings, by_weight, error, note
from greendot.ops.doctor.machine import machine
from greendot.ops.facts_model import CertificateFacts, FileFacts, MachineFacts, PostgresFacts, RedisFacts, SqliteFacts


class Facts(Struct, frozen=True, kw_only=True):
    """Facts about the set-up beside its settings. Facts that were not collected keep their defaults."""

    machine: MachineFacts
    connections: int = 10_000  # connections expected on this machine
    redis: tuple[RedisFacts, ...] = ()
    postgres: PostgresFacts | None = None
    sqlite: SqliteFacts | None = None
    tables: int = 0  # version of the tables that this Greendot works with
    certificate: CertificateFacts | None = None
    files: tuple[FileFacts, ...] = ()  # files that contain secrets
    host_flag: str | None = None  # --host of the command line
    dev_secret: str = ""  # secret that a dev server keeps in `server.data_dir`


def diagnosis(settings: Settings, facts: Facts) -> list[Finding]:
    """Return the findings about a set-up whose settings are valid, the heaviest first."""
    return by_weight(_all(settings, facts))


def invalid_settings(mistakes: Sequence[str]) -> Findings:
    """Yield the findings about settings that a server refuses. No other check can be made with them."""
    for mistake in mistakes:
        yield error("settings", mistake, "A server refuses to start.", "Correct the setting; see docs/settings.md.")
    yield note(
        "other checks",
        "not run, because the settings are wrong",
        "The checks of engine, store and machine need valid settings.",
        "Correct the settings, then run greendot doctor again.",
    )


def _all(settings: Settings, facts: Facts) -> Iterable[Finding]:
    yield from access.dev_mode(settings, facts.host_flag)
    yield from access.tokens(settings, facts.dev_secret)
    yield from access.api_key(settings, _stored_keys(facts))
    yield from access.shared(settings)
    yield from access.door(settings)
    yield from access.transport(settings, facts.certificate, facts.files)
    yield from service.limits(settings)
    yield from service.calls(settings)
    yield from redis.engine(settings, facts.redis)
    yield from _store(settings, facts)
    yield from machine(settings, facts.machine, facts.connections)


def _store(settings: Settings, facts: Facts) -> Findings:
    if facts.postgres is not None:
        yield from store.postgres(settings, facts.postgres, facts.tables)
    if facts.sqlite is not None:
        yield from store.sqlite(settings, facts.sqlite, facts.tables)


def _stored_keys(facts: Facts) -> int:
    return sum(found.api_keys for found in (facts.postgres, facts.sqlite) if found is not None)
