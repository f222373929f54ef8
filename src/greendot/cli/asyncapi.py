"""`greendot asyncapi`."""

from __future__ import annotations

import click
import msgspec

from greendot.http.asyncapi import document


@click.command()
def asyncapi() -> None:
    """Print the AsyncAPI document of the WebSocket protocol, as servers of this version serve it at /asyncapi.json."""
    click.echo(msgspec.json.format(msgspec.json.encode(document()), indent=2))
