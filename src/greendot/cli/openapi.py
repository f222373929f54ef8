"""`greendot openapi`."""

from __future__ import annotations

import click
import msgspec

from greendot.app.http import document


@click.command()
def openapi() -> None:
    """Print the OpenAPI document of the HTTP API, as servers of this version serve it at /openapi.json."""
    click.echo(msgspec.json.format(msgspec.json.encode(document()), indent=2))
