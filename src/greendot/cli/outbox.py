"""Command `greendot outbox`: install an app outbox, show it, and retry rows that were set aside."""

from __future__ import annotations

from pathlib import Path

import click

from greendot.app.adapters import make_outbox
from greendot.cli._group import Group
from greendot.cli._options import json_option, print_json
from greendot.cli._settings import config_option, settings_from
from greendot.cli._store import on_a_loop
from greendot.cli._tables import NOTHING, ago, several, table
from greendot.clock import SystemClock
from greendot.errors import ConfigError
from greendot.store.app_outbox import Outbox, OutboxStatus

MOST_SHOWN = 50  # rows that were set aside

url_option = click.option("--url", metavar="URL", help="Database of the app: postgresql://… [default: outbox.url]")


@click.group(cls=Group)
def outbox() -> None:
    """Manage the outbox: rows that an app writes in its own transactions, for Greendot to send."""


@outbox.command()
@url_option
@config_option
def install(url: str | None, config: Path | None) -> None:
    """Create the table greendot_outbox with its indexes and trigger. Safe to run again."""
    for made in on_a_loop(_outbox(url, config).install()):
        click.echo(f"Created {made}.")
    click.echo("The outbox is ready. Set outbox.url (GREENDOT_OUTBOX_URL) of the servers to this database.")


@outbox.command()
@json_option
@url_option
@config_option
def status(as_json: bool, url: str | None, config: Path | None) -> None:
    """Show how many rows wait to be sent, and the rows that were set aside with the reason."""
    found = on_a_loop(_outbox(url, config).status(MOST_SHOWN))
    if as_json:
        print_json(found._asdict() | {"poison": [row._asdict() for row in found.poison]})
    else:
        _show(found)


@outbox.command()
@click.argument("ids", metavar="ID…", type=int, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All rows that were set aside.")
@url_option
@config_option
def retry(ids: tuple[int, ...], everything: bool, url: str | None, config: Path | None) -> None:
    """Send rows that were set aside again. Correct the cause first."""
    if bool(ids) == everything:
        raise click.UsageError(
            "Give the ids of rows that were set aside, or --all. List the ids with: greendot outbox status"
        )
    found = on_a_loop(_outbox(url, config).retry(None if everything else ids))
    click.echo(f"{several(len(found), 'row')} will be sent." if found else "No matching rows were set aside.")
    if missing := sorted({*ids} - {*found}):
        click.echo(f"Not found, or not set aside: {', '.join(map(str, missing))}.")


def _show(found: OutboxStatus) -> None:
    now = SystemClock().now_ms()
    if not found.waiting:
        click.echo("No rows are waiting.")
    else:
        click.echo(f"Waiting rows: {found.waiting}. The oldest was written {ago(found.oldest_at, now)}.")
    if not found.set_aside:
        return
    click.echo(f"Rows that were set aside: {found.set_aside}")
    rows = [
        (
            str(row.id),
            row.tenant,
            row.target,
            (row.room if row.target == "message" else row.user) or NOTHING,
            str(row.attempts),
            ago(row.failed_at, now),
            row.error or NOTHING,
        )
        for row in found.poison
    ]
    click.echo(table(("ID", "TENANT", "TARGET", "RECIPIENT", "ATTEMPTS", "FAILED", "REASON"), rows))
    if found.set_aside > len(rows):
        click.echo(f"… and {found.set_aside - len(rows)} more.")
    click.echo("Correct the cause, then send them again: greendot outbox retry ID…")


def _outbox(url: str | None, config: Path | None) -> Outbox:
    settings = settings_from(config, {"outbox": {"url": url}})
    if not settings.outbox.url:
        raise ConfigError("outbox.url is not set. Give the app's database: --url postgresql://HOST/DATABASE")
    return make_outbox(settings)
