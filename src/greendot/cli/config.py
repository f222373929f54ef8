"""Commands `greendot check-config` and `greendot defaultconfig`: current settings and their defaults."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from greendot import __version__
from greendot.app.config_checks import CHECKS
from greendot.cli._settings import config_option, settings_from
from greendot.config import commented, shown, strange_variables


@click.command("check-config")
@config_option
def check_config(config: Path | None) -> None:
    """Check the settings and print the resulting values. Secrets are not shown."""
    settings = settings_from(config, {}, CHECKS)
    for section, values in shown(settings).items():
        click.echo(f"[{section}]")
        for key, value in values.items():
            click.echo(f"{key} = {msgspec.json.encode(value).decode()}")
        click.echo()
    for note in strange_variables(os.environ):
        click.echo(f"Note: {note}")
    click.echo("The settings are valid.")


@click.command()
def defaultconfig() -> None:
    """Print all settings as a TOML file, each with its default, meaning and allowed values.

    \b
      greendot defaultconfig > greendot.toml
    """
    click.echo(commented(__version__), nl=False)
