"""Dead letters: pushes and webhook events that were given up. Commands list and replay them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from greendot.cli._tables import table

MOST_LISTED = 50

tenant_option = click.option("--tenant", metavar="NAME", help="Only dead letters of this tenant.")


def which_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --id and --all to a command."""
    some = click.option(
        "--id", "ids", type=int, multiple=True, metavar="ID", help="Id of a dead letter; may be repeated."
    )
    return some(click.option("--all", "everything", is_flag=True, help="All dead letters.")(command))


def wanted(ids: tuple[int, ...], everything: bool, lists: str) -> tuple[int, ...] | None:
    """Return the ids that were named; None means all. `lists` is the command that shows dead letters."""
    if bool(ids) == everything:
        raise click.UsageError(f"Give --id or --all. List the ids with: {lists}")
    return None if everything else ids


def print_list(head: Sequence[str], rows: Sequence[Sequence[str]], command: str) -> None:
    """Print at most `MOST_LISTED` dead letters, and how to replay them."""
    if not rows:
        click.echo("There are no dead letters.")
        return
    click.echo(table(head, rows[:MOST_LISTED]))
    if len(rows) > MOST_LISTED:
        click.echo("… and more.")
    click.echo(f"Correct the cause, then send them again: {command} replay --id ID (or --all)")


def print_replayed(found: Sequence[int], ids: tuple[int, ...], sentence: str) -> None:
    """Print `sentence` if any dead letter was replayed, and the named ids that were not."""
    click.echo(sentence if found else "No matching dead letters found.")
    if missing := sorted({*ids} - {*found}):
        click.echo(f"Not found, or not dead letters: {', '.join(map(str, missing))}.")
