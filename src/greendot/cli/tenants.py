"""Command `greendot tenants`: register tenants, show and erase their data."""

from __future__ import annotations

import sys

import click

from greendot.cli._group import Group
from greendot.cli._options import after_option, engine_option, json_option, limit_option, print_json, print_next_page
from greendot.cli._revoked_sessions import EndedSessions, revocation_until_now, revoke_and_end
from greendot.cli._settings import as_running_server
from greendot.cli._store import StoreAccess, store_options
from greendot.cli._tables import ago, several, table
from greendot.clock import SystemClock
from greendot.config import check_id
from greendot.errors import ConfigError
from greendot.store.api_keys import RegisteredTenant
from greendot.store.port import Store

AT_ONCE = 1_000  # rows erased in one commit: other writers wait no longer than for any other commit
REPORT_EVERY = 100_000


@click.group(cls=Group)
def tenants() -> None:
    """Manage tenants. Registration is required only if auth.tenants is `registered`."""


@tenants.command()
@click.argument("tenant")
@store_options
def create(tenant: str, access: StoreAccess) -> None:
    """Register TENANT."""
    check_id("tenant", tenant)
    now = SystemClock().now_ms()
    if not access.run(lambda store: store.create_tenant(tenant, now)):
        raise ConfigError(f"tenant {tenant} is already registered.")
    click.echo(f"Registered {tenant}. Create a key for it: greendot keys create NAME --tenant {tenant} --scope SCOPE")


@tenants.command("list")
@after_option
@limit_option
@json_option
@store_options
def list_tenants(after: str | None, limit: int, as_json: bool, access: StoreAccess) -> None:
    """List the registered tenants, and tenants with a section in the settings."""

    async def look(store: Store) -> list[tuple[str, int | None, int]]:
        found: dict[str, int | None] = dict.fromkeys(name for name in access.settings.tenants if name > (after or ""))
        found |= dict(await store.tenants(after, limit))
        page = sorted(found.items())[:limit]
        return [(tenant, at, len(await store.api_keys(tenant))) for tenant, at in page]

    entries = access.run(look)
    if as_json:
        print_json({"tenants": [{"tenant": it, "registered_at": at, "keys": keys} for it, at, keys in entries]})
        return
    if not entries:
        click.echo("No tenant is registered." if after is None else "No more tenants are registered.")
        return
    now = SystemClock().now_ms()
    rows = [(it, "in the settings" if at is None else ago(at, now), str(keys)) for it, at, keys in entries]
    click.echo(table(("TENANT", "REGISTERED", "KEYS"), rows))
    print_next_page(len(rows), limit, rows[-1][0])


@tenants.command()
@click.argument("tenant")
@json_option
@store_options
def show(tenant: str, as_json: bool, access: StoreAccess) -> None:
    """Count the records of TENANT in the store."""
    check_id("tenant", tenant)
    registered, rows = access.run(lambda store: _count(store, tenant))
    if as_json:
        print_json({"tenant": tenant, "registered_at": registered and registered.created_at, "records": rows})
        return
    empty = "" if rows else " It has no records in the store."
    if registered is None:
        click.echo(f"{tenant} is not registered.{empty}")
    else:
        click.echo(f"{tenant} was registered {ago(registered.created_at, SystemClock().now_ms())}.{empty}")
    if rows:
        click.echo(table(("RECORDS", "COUNT"), [(name, str(count)) for name, count in rows.items()]))


@tenants.command()
@click.argument("tenant")
@click.option("--yes", is_flag=True, help="Confirm that all data of the tenant is erased permanently.")
@json_option
@engine_option
@store_options
def delete(tenant: str, yes: bool, as_json: bool, access: StoreAccess) -> None:
    """Erase TENANT permanently: its keys, rooms, messages, inboxes and registration.

    Tokens issued until now are revoked first. The command waits until the sessions have ended. A revocation stays
    until the last token it covers has expired. Exit code 1: not all servers have confirmed the end of the sessions;
    run the command again.
    """
    check_id("tenant", tenant)
    settings = as_running_server(access.settings)

    async def erase(store: Store) -> tuple[int, EndedSessions]:
        registered, rows = await _count(store, tenant)
        if registered is None and not rows:
            raise ConfigError(f"tenant {tenant!r} is not registered and has no records in the store.")
        if rows and not yes:
            has = ", ".join(f"{count} {name}" for name, count in rows.items())
            raise ConfigError(f"tenant {tenant} still has {has}. To erase them permanently, add --yes.")
        ended = await revoke_and_end(settings, store, revocation_until_now(settings, tenant, "tenant", tenant))
        erased = 0
        while count := await store.erase_tenant(tenant, limit=AT_ONCE):
            if erased // REPORT_EVERY != (erased + count) // REPORT_EVERY:
                click.echo(f"Erased {erased + count} of {sum(rows.values())} records …", err=True)
            erased += count
        return erased, ended

    erased, ended = access.run(erase)
    if as_json:
        print_json({"tenant": tenant, "erased": erased, "confirmed": ended.sure})
    else:
        click.echo(f"Erased {tenant}: {several(erased, 'record')}. Servers refuse its keys within 10 s.")
        ended.report(tenant)
    sys.exit(ended.exit_code)


async def _count(store: Store, tenant: str) -> tuple[RegisteredTenant | None, dict[str, int]]:
    return await store.tenant(tenant), await store.tenant_rows(tenant)
