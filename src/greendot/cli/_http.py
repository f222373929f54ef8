"""HTTP requests of commands to a running server, with its API key."""

from __future__ import annotations

import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click
import msgspec

from greendot.cli._settings import settings_from, with_dev_key
from greendot.errors import ConfigError
from greendot.protocol.decoding import decode

REQUEST_S = 10.0

url_option = click.option("--url", metavar="URL", help="Server to call. [default: http://127.0.0.1:8000]")


def check_target(url: str | None, store: str | None, tenant: str | None) -> None:
    """Raise UsageError for options that do not go together: a command calls a server, or writes to the store itself."""
    if store is None and tenant is not None:
        raise click.UsageError("--tenant needs --store: a server takes the tenant from the API key.")
    if store is not None and url is not None:
        raise click.UsageError("Give either --url (call a server) or --store (write directly to the store), not both.")


def ask(config: Path | None, url: str | None, path: str, said: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the server at `url`, else to the one of the settings on this machine. Return the answer.

    Raise ConfigError without an API key, or if the server refuses or does not answer.
    """
    settings = with_dev_key(settings_from(config, {}))
    url = url or f"http://127.0.0.1:{settings.server.port}"
    if not settings.api.key:
        raise ConfigError(
            "no API key found. Set GREENDOT_API_KEY to the server's key, or write directly to the store with --store "
            f"URL. For a dev server, run this command in its working directory: there is no key in "
            f"{settings.server.data_dir}."
        )
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url!r} must begin with http:// or https://.")
    request = urllib.request.Request(  # noqa: S310  (the scheme is checked above)
        f"{url.rstrip('/')}{path}",
        msgspec.json.encode(said),
        {"Authorization": f"Bearer {settings.api.key}", "Content-Type": "application/json"},
    )
    try:
        # Without the environment's proxies, which are for the web: servers are near.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=REQUEST_S) as response:
            answer: dict[str, Any] = decode(response.read(), dict)
            return answer
    except urllib.error.HTTPError as error:
        raise ConfigError(f"the server at {url} refused the request: {_reason(error)}") from None
    except (OSError, ValueError, msgspec.DecodeError) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(
            f"no server answers at {url}: {getattr(reason, 'strerror', None) or reason}. Start one (greendot serve "
            "--dev), choose another with --url, or write directly to the store with --store URL."
        ) from None


def _reason(error: urllib.error.HTTPError) -> str:
    with error:
        try:
            return str(decode(error.read(), dict)["detail"])
        except (msgspec.DecodeError, KeyError, OSError):
            return f"{error.code} {HTTPStatus(error.code).phrase}"
