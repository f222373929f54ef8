"""Command `greendot migrate`: bring the tables of the store up to date."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from greendot.app.adapters import make_store
from greendot.cli._settings import config_option, settings_from


@click.command()
@click.option("--store", metavar="URL", help="Store: sqlite:///FILE or postgresql://HOST/DATABASE.")
@config_option
def migrate(store: str | None, config: Path | None) -> None:
    """Bring the tables of the store up to date. Safe to run at any time, also in parallel."""
    for step in asyncio.run(make_store(settings_from(config, {"store": {"url": store}})).migrate()):
        click.echo(f"Applied {step}.")
    click.echo("The tables are up to date.")
