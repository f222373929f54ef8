"""Commands `greendot backup` and `greendot restore`: the embedded store, in one file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from greendot.cli._options import json_option, print_json
from greendot.cli._settings import config_option, settings_from
from greendot.cli._store import INTERRUPTED, store_option
from greendot.cli._tables import several
from greendot.ops.backup import Contents, back_up, put_back

SHOWN_S = 0.2  # between two displays of the progress
NOT_IN_IT = "Not in it: settings, secrets, and what is in Redis (who is online now, which fills itself again)."
REVIVED = (
    "Tokens that were revoked and users that were erased since the backup was made are back. "
    "To have no token count that was issued until now:"
)

T = TypeVar("T")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@json_option
@store_option
@config_option
def backup(file: Path, force: bool, as_json: bool, store: str | None, config: Path | None) -> None:
    """Copy the embedded store (SQLite) to FILE, as it is at one moment. Servers go on meanwhile, and do not wait.

    The copy is looked at before it takes its name: is it whole, of which version; its checksum is put beside it.
    What is in Redis is not in it.

    \b
      greendot backup /backups/greendot-$(date +%F).db
    """
    settings = settings_from(config, {"store": {"url": store}})
    found = _with_progress(lambda progress: back_up(settings, file, force=force, progress=progress))
    if as_json:
        print_json({"file": str(file), "store": settings.store_path} | _shown(found))
        return
    click.echo(f"Backed up {settings.store_path} to {file}: {_describe(found)}.")
    click.echo(f"Its checksum is in {file}.sha256. {NOT_IN_IT}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace a store that is there; it is kept beside it.")
@json_option
@store_option
@config_option
def restore(file: Path, force: bool, as_json: bool, store: str | None, config: Path | None) -> None:
    """Put a backup in the place of the embedded store (SQLite). No server may run on it.

    FILE is checked first: checksum, integrity, tables and version. The store is opened and checked again before
    anything is said to be restored. Called again after it was killed, it begins anew.

    Tokens that were revoked after the backup was made are valid again: `greendot revoke --all-tenants --store URL`
    revokes all that were issued until now. Users erased since then are back: erase them again.

    \b
      greendot restore /backups/greendot-2027-03-01.db --store sqlite:////var/lib/greendot/greendot.db --force
    """
    settings = settings_from(config, {"store": {"url": store}})
    done = _with_progress(lambda progress: put_back(settings, file, force=force, progress=progress))
    if as_json:
        kept = None if done.kept is None else str(done.kept)
        left = [str(path) for path in done.left]
        more = {"checksum_compared": done.checked, "kept": kept, "left_behind": left, "to_migrate": done.old}
        print_json({"file": str(file), "store": settings.store_path} | _shown(done.contents) | more)
        return
    click.echo(f"Restored {settings.store_path} from {file}: {_describe(done.contents)}. It was opened and checked.")
    if done.kept is not None:
        click.echo(f"What was there is in {done.kept}.")
    if done.left:
        names = ", ".join(path.name for path in done.left)
        whose = "it" if done.kept is not None else "a database that was moved"
        click.echo(f"SQLite's logs of {whose} were beside it, and are now {names} in {done.left[0].parent}.")
    if not done.checked:
        click.echo(f"There is no {file.name}.sha256 beside it, so a changed text in it would not have been noticed.")
    click.echo(f"{REVIVED} greendot revoke --all-tenants --store sqlite:///{settings.store_path}")
    if done.old:
        click.echo("Its tables are older: a server brings them up to date when it starts.")


def _with_progress(work: Callable[[Callable[[int, int], None]], T]) -> T:
    """Run `work`, and show its progress in a terminal. Ctrl-C leaves no files behind."""
    shown_at = time.monotonic()  # short work shows no progress
    shows = sys.stderr.isatty()

    def progress(done: int, of: int) -> None:
        nonlocal shown_at
        if shows and of and time.monotonic() - shown_at > SHOWN_S:
            shown_at = time.monotonic()
            click.echo(f"\r{done * 100 // of:3} %", err=True, nl=False)

    try:
        return work(progress)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        if shows:
            click.echo("\r     \r", err=True, nl=False)


def _describe(found: Contents) -> str:
    records = ", ".join(
        several(count, name.removesuffix("s").replace("_", " ")) for name, count in found.records.items()
    )
    return f"{records}; {found.size / 1e6:,.1f} MB, tables {found.version}"


def _shown(found: Contents) -> dict[str, object]:
    return {"bytes": found.size, "sha256": found.sha256, "tables": found.version, "records": found.records}
