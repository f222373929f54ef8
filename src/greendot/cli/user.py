"""Command `greendot user`: export and erase all data of a user."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec
from msgspec import Raw

from greendot.cli._group import Group
from greendot.cli._options import check_ids, engine_option, json_option, print_json, tenant_option
from greendot.cli._revoked_sessions import EndedSessions, revocation_until_now, revoke_and_end
from greendot.cli._settings import as_running_server
from greendot.cli._store import StoreAccess, store_options
from greendot.cli._tables import several
from greendot.clock import SystemClock
from greendot.errors import ConfigError
from greendot.store.port import Store
from greendot.store.user_data import ExportCursor

AT_ONCE = 1_000  # rows read or erased in one step, so that no other work waits for long
OWN = ("tenant", "user", "user_id")  # columns that the first line has for all rows


@click.group(cls=Group)
def user() -> None:
    """Export or erase all data of a user."""


@user.command()
@click.argument("user")
@tenant_option
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="New file for the data. [default: standard output]"
)
@store_options
def export(user: str, tenant: str, out: Path | None, access: StoreAccess) -> None:
    """Export all data of USER in the store, as JSON lines. Reads all messages of the tenant."""
    check_ids("user", (user,), tenant)

    async def work(store: Store) -> int:
        with _made(out) if out is not None else nullcontext(sys.stdout.buffer) as file:
            return await _export(store, tenant, user, file)

    count = access.run(work)
    if out is not None:
        click.echo(f"Wrote {several(count, 'record')} of {user} to {out}.")


def _made(out: Path) -> BinaryIO:
    try:
        # Readable by its owner only, and never over an existing file.
        return os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except OSError as error:
        raise ConfigError(f"cannot create {out}: {error.strerror}.") from None


async def _export(store: Store, tenant: str, user: str, file: BinaryIO) -> int:
    head = {"what": "user", "tenant": tenant, "user": user, "exported_at": SystemClock().now_ms()}
    file.write(msgspec.json.encode(head) + b"\n")
    count = 0
    place: ExportCursor | None = None
    while True:
        found = await store.rows_of(tenant, user, place, limit=AT_ONCE)
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
@click.option("--yes", is_flag=True, help="Confirm that the data is erased permanently.")
@json_option
@engine_option
@store_options
def erase(user: str, tenant: str, yes: bool, as_json: bool, access: StoreAccess) -> None:
    """Erase all data of USER permanently. If it was interrupted, run the command again.

    Tokens issued until now are revoked first. The command waits until the user's sessions have ended. Exit code 1: not
    all servers have confirmed the end of the sessions; run the command again.

    Messages keep their numbers, but lose their body and author. The command reads all messages of the tenant.
    """
    check_ids("user", (user,), tenant)
    settings = as_running_server(access.settings)
    if not yes:
        raise ConfigError(
            f"this would erase all data of {user} permanently. See the data with `greendot user export`. To erase it, "
            "add --yes."
        )

    async def work(store: Store) -> tuple[int, EndedSessions]:
        # Before anything is erased: sessions write until they have ended.
        ended = await revoke_and_end(settings, store, revocation_until_now(settings, tenant, "user", user))
        return await _erase(store, tenant, user), ended

    rows, ended = access.run(work)
    if as_json:
        print_json({"tenant": tenant, "user": user, "erased": rows, "sessions": ended.left, "confirmed": ended.sure})
    else:
        click.echo(f"Erased {user}: {several(rows, 'record')}.")
        ended.report(user)
    sys.exit(ended.exit_code)


async def _erase(store: Store, tenant: str, user: str) -> int:
    rows = 0
    place: ExportCursor | None = None
    while True:
        step = await store.erase_user(tenant, user, place, limit=AT_ONCE)
        rows += step.rows
        if (place := step.next) is None:
            return rows
