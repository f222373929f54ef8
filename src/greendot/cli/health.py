"""Command `greendot health`: liveness of a server, for containers and scripts without curl."""

from __future__ import annotations

import http.client
import ssl
import sys
from pathlib import Path
from urllib.parse import urlsplit

import click

from greendot.cli._http import check_url
from greendot.cli._settings import config_option, settings_from
from greendot.config import Settings
from greendot.errors import ConfigError

ANSWER_S = 5.0
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (nothing is bound here)


@click.command()
@click.option(
    "--ready", is_flag=True, help="Check readiness for new clients: not while it starts, drains or lacks Redis."
)
@click.option("--url", metavar="URL", help="Server to check. [default: the server on this machine]")
@config_option
def health(ready: bool, url: str | None, config: Path | None) -> None:
    """Check whether the server on this machine, or at --url, is alive. Exit code: 0 if it is, 1 if not.

    For the server on this machine, use its environment and --config: they have its address, its port and its TLS
    settings. At --url the certificate of the server is verified.
    """
    connection, prefix = _to_url(url) if url is not None else (_to_own(settings_from(config, {})), "")
    path = "/readyz" if ready else "/livez"
    try:
        status, said = _asked(connection, prefix + path)
    except (OSError, http.client.HTTPException) as error:
        status, said = 0, getattr(error, "strerror", None) or str(error) or type(error).__name__
    well = status == http.client.OK
    click.echo(f"{path}: {f'{status} ' if status else ''}{said}", err=not well)
    sys.exit(0 if well else 1)


def _to_own(settings: Settings) -> http.client.HTTPConnection:
    host, port = EVERYWHERE.get(settings.server.host, settings.server.host), settings.server.port
    if not settings.tls.cert:
        return http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    # Not verified: only liveness is checked, and the certificate is for the public name of the server.
    unverified = ssl._create_unverified_context()  # noqa: S323
    return http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=unverified)


def _to_url(url: str) -> tuple[http.client.HTTPConnection, str]:
    """Return a connection to the server, and the path in front of its routes. Raise ConfigError for a wrong address."""
    try:
        parts = urlsplit(check_url(url))
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host:
        raise ConfigError(f"--url {url!r} is not the address of a server; give one such as https://HOST:8000.")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(host, port, timeout=ANSWER_S), parts.path


def _asked(connection: http.client.HTTPConnection, path: str) -> tuple[int, str]:
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace").strip()
    finally:
        connection.close()
