"""`greendot user`: hand out all that is kept of somebody, and erase it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec
from msgspec import Raw

from greendot.cli._options import check_ids, engine_option, json_option, print_json, tenant_option
from greendot.cli._revoked_sessions import UNSURE, EndedSessions, revocation_until_now, revoke_and_end
from greendot.cli._settings import config_option, with_dev_secret
from greendot.cli._store import on_store, store_option, store_settings
from greendot.cli._tables import several
from greendot.clock import SystemClock
from greendot.errors import ConfigError
from greendot.store.port import Store
from greendot.store.user_data import ExportCursor

AT_ONCE = 1_000  # rows looked at in one step: nobody waits for it
OWN = ("tenant", "user", "user_id")  # said once for all rows


@click.group()
def user() -> None:
    """All that is kept of a user."""


@user.command()
@click.argument("user")
@tenant_option
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="A file that is made for it; else it is printed."
)
@store_option
@config_option
def export(user: str, tenant: str, out: Path | None, store: str | None, config: Path | None) -> None:
    """All that the store has of USER, as lines of JSON. It reads all messages of the tenant."""
    check_ids("user", (user,), tenant)
    settings = store_settings(store, config)
    file = _made(out) if out is not None else None

    async def look(there: Store) -> int:
        return await _export(there, tenant, user, file or sys.stdout.buffer)

    try:
        count = on_store(settings, look)
    finally:
        if file is not None:
            file.close()
    if out is not None:
        click.echo(f"Wrote {several(count, 'record')} of {user} to {out}.")


def _made(out: Path) -> BinaryIO:
    try:
        # Nobody else may read it, and nothing that is there is written over.
        return os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except OSError as error:
        raise ConfigError(f"cannot make {out}: {error.strerror}.") from None


async def _export(there: Store, tenant: str, user: str, file: BinaryIO) -> int:
    head = {"what": "user", "tenant": tenant, "user": user, "exported_at": SystemClock().now_ms()}
    file.write(msgspec.json.encode(head) + b"\n")
    count = 0
    place: ExportCursor | None = None
    while True:
        found = await there.rows_of(tenant, user, place, limit=AT_ONCE)
        for table, row in found.rows:
            file.write(msgspec.json.encode({"what": table, **_shown(row)}) + b"\n")
        count += len(found.rows)
        if (place := found.next) is None:
            file.flush()
            return count


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: Raw(value) if isinstance(value, bytes) else value for name, value in row.items() if name not in OWN}


@user.command()
@click.argument("user")
@tenant_option
@click.option("--yes", is_flag=True, help="Erase it, for good.")
@json_option
@engine_option
@store_option
@config_option
def erase(
    user: str, tenant: str, yes: bool, as_json: bool, engine: str | None, store: str | None, config: Path | None
) -> None:
    """Erase all of USER. It can be called again, and goes on where it was cut short.

    Tokens issued until now are revoked first, and it waits until the user's sessions have ended. Exit code 1: not all
    servers have confirmed that; call it again.

    Messages keep their numbers, and lose what they said and who said it. It reads all messages of the tenant.
    """
    check_ids("user", (user,), tenant)
    settings = with_dev_secret(store_settings(store, config, engine))
    if not yes:
        raise ConfigError(
            f"all of {user} would be erased, for good: `greendot user export` shows it. Say so with --yes."
        )

    async def work(there: Store) -> tuple[int, EndedSessions]:
        # Before anything is erased: sessions go on writing until they have ended.
        ended = await revoke_and_end(settings, there, revocation_until_now(settings, tenant, "user", user))
        return await _erase(there, tenant, user), ended

    rows, ended = on_store(settings, work)
    if as_json:
        print_json({"tenant": tenant, "user": user, "erased": rows, "sessions": ended.left, "confirmed": ended.sure})
        sys.exit(0 if ended.sure and not ended.left else UNSURE)
    click.echo(f"Erased {user}: {several(rows, 'record')}.")
    sys.exit(ended.report(user))


async def _erase(there: Store, tenant: str, user: str) -> int:
    rows = 0
    place: ExportCursor | None = None
    while True:
        step = await there.erase_user(tenant, user, place, limit=AT_ONCE)
        rows += step.rows
        if (place := step.next) is None:
            return rows
