"""Command `greendot version`."""

from __future__ import annotations

import json
import platform

import click

from greendot import __version__
from greendot.store.schema import steps


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the versions of Python and of the tables.")
def version(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        tables = {store: steps(store)[-1].number for store in ("sqlite", "postgres")}
        click.echo(json.dumps({"version": __version__, "python": platform.python_version(), "tables": tables}))
    else:
        click.echo(f"greendot {__version__}")
