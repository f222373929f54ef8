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
NOT_INCLUDED = "Not included: settings, secrets and data in Redis (presence, which the nodes restore)."
REVIVED = (
    "Tokens and API keys that were revoked after the backup are valid again, and users who were erased after the "
    "backup are back. Revoke these API keys again, and erase these users again. To revoke all tokens issued until now, "
    "run:"
)

T = TypeVar("T")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@json_option
@store_option
@config_option
def backup(file: Path, force: bool, as_json: bool, store: str | None, config: Path | None) -> None:
    """Back up the embedded store (SQLite) to FILE. Servers keep running and are not blocked.

    The backup has the state of one moment. Integrity and version are verified before FILE appears. The checksum is
    written to FILE.sha256. Data in Redis is not included.

    \b
      greendot backup /backups/greendot-$(date +%F).db
    """
    settings = settings_from(config, {"store": {"url": store}})
    found = _with_progress(lambda progress: back_up(settings, file, force=force, progress=progress))
    if as_json:
        print_json({"file": str(file), "store": settings.store_path} | _shown(found))
        return
    click.echo(f"Backed up {settings.store_path} to {file}: {_describe(found)}.")
    click.echo(f"Checksum: {file}.sha256. {NOT_INCLUDED}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace an existing store; the old one is kept beside it.")
@json_option
@store_option
@config_option
def restore(file: Path, force: bool, as_json: bool, store: str | None, config: Path | None) -> None:
    """Replace the embedded store (SQLite) with a backup. Stop all servers and workers first.

    FILE is verified first: checksum, integrity, tables and version. After the replacement the store is opened and
    verified again. If the command was killed, run it again.

    Tokens revoked after the backup are valid again. To revoke all tokens issued until now, run `greendot revoke
    --all-tenants --store URL`. Users erased after the backup are back: erase them again.

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
    click.echo(
        f"Restored {settings.store_path} from {file}: {_describe(done.contents)}. The store was opened and verified."
    )
    if done.kept is not None:
        click.echo(f"The previous store was kept as {done.kept}.")
    if done.left:
        names = ", ".join(path.name for path in done.left)
        whose = "the previous store" if done.kept is not None else "a database that was moved"
        click.echo(f"SQLite logs of {whose} were renamed to {names} in {done.left[0].parent}.")
    if not done.checked:
        click.echo(
            f"{file.name}.sha256 not found: the checksum was not verified, so changed data would not be noticed."
        )
    click.echo(f"{REVIVED} greendot revoke --all-tenants --store sqlite:///{settings.store_path}")
    if done.old:
        click.echo("The tables have an older version. The next server migrates them when it starts.")


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
