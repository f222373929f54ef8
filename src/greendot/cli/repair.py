"""Command `greendot repair`: recount and correct counters."""

from __future__ import annotations

import sys

import click

from greendot.cli._group import Group
from greendot.cli._options import json_option, print_json
from greendot.cli._store import StoreAccess, store_options
from greendot.cli._tables import table

DRIFT = 1  # exit code if a counter is wrong and was not corrected


@click.group(cls=Group)
def repair() -> None:
    """Find and correct wrong counters."""


@repair.command()
@click.option("--dry-run", is_flag=True, help="Only report wrong counters; exit code 1 if there are any.")
@json_option
@store_options
def counters(dry_run: bool, as_json: bool, access: StoreAccess) -> None:
    """Recount every inbox and correct wrong counters. Reads all notifications; servers may run."""
    wrong = access.run(lambda store: store.recount(fix=not dry_run))
    if as_json:
        inboxes = [
            {"tenant": tenant, "user": user, "kept": kept._asdict(), "counted": counted._asdict()}
            for (tenant, user), kept, counted in wrong
        ]
        print_json({"wrong": inboxes, "fixed": not dry_run})
    elif not wrong:
        click.echo("All counters are correct.")
    else:
        rows = [
            (
                tenant,
                user,
                *(f"{was} → {now}" if was != now else str(now) for was, now in zip(kept, counted, strict=True)),
            )
            for (tenant, user), kept, counted in wrong
        ]
        click.echo(table(("TENANT", "USER", "HEAD", "UNREAD", "UNSEEN"), rows))
        which = "1 inbox" if len(wrong) == 1 else f"{len(wrong)} inboxes"
        click.echo(f"{which} would be corrected." if dry_run else f"{which} corrected.")
    if wrong and dry_run:
        sys.exit(DRIFT)
