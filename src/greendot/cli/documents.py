"""Commands `greendot openapi` and `greendot asyncapi`: the documents of the APIs."""

from __future__ import annotations

from typing import Any

import click
import msgspec


@click.command()
def openapi() -> None:
    """Print the OpenAPI document of the HTTP API. Servers of this version serve it at /openapi.json."""
    from greendot.app.http import document  # imported late: loads the whole server

    _print(document())


@click.command()
def asyncapi() -> None:
    """Print the AsyncAPI document of the WebSocket protocol. Servers of this version serve it at /asyncapi.json."""
    from greendot.http.asyncapi import document

    _print(document())


def _print(document: dict[str, Any]) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
