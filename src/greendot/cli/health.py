"""Command `greendot health`: liveness of the server on this machine, for containers and scripts without curl."""

from __future__ import annotations

import http.client
import ssl
import sys
from pathlib import Path

import click

from greendot.cli._settings import config_option, settings_from
from greendot.config import Settings

ANSWER_S = 5.0
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (nothing is bound here)


@click.command()
@click.option(
    "--ready", is_flag=True, help="Check readiness for new clients: not while it starts, drains or lacks Redis."
)
@config_option
def health(ready: bool, config: Path | None) -> None:
    """Check whether the server on this machine is alive. Exit code: 0 if it is, 1 if not.

    Use the same environment and --config as the server: they have its address, its port and its TLS settings.
    """
    settings = settings_from(config, {})
    path = "/readyz" if ready else "/livez"
    try:
        status, said = _asked(settings, path)
    except (OSError, http.client.HTTPException) as error:
        status, said = 0, getattr(error, "strerror", None) or str(error) or type(error).__name__
    well = status == http.client.OK
    click.echo(f"{path}: {f'{status} ' if status else ''}{said}", err=not well)
    sys.exit(0 if well else 1)


def _asked(settings: Settings, path: str) -> tuple[int, str]:
    host, port = EVERYWHERE.get(settings.server.host, settings.server.host), settings.server.port
    connection: http.client.HTTPConnection
    if settings.tls.cert:
        # Not verified: only liveness is checked, and the certificate is for the public name of the server.
        unverified = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=unverified)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace").strip()
    finally:
        connection.close()
