"""HTTP requests of commands to a running server, with its API key."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from email.utils import mktime_tz, parsedate_tz
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

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


def check_url(url: str) -> str:
    """Return the address of a server without a slash at its end. Raise ConfigError if it is not one of HTTP."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url!r} must begin with http:// or https://.")
    return url.rstrip("/")


class Answer(NamedTuple):
    """Answer of a server."""

    url: str  # the server that was called
    data: dict[str, Any]
    at_ms: int  # time of the answer by the server's clock, in whole seconds


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Handler that follows no redirect: the key is for this server only."""

    def redirect_request(self, *request: Any) -> None:
        return None


def ask(
    config: Path | None,
    url: str | None,
    path: str,
    said: dict[str, Any] | None = None,
    *,
    instead: str = "write directly to the store with --store URL",
) -> Answer:
    """Send a request to the server at `url`, else to the one of the settings on this machine. Return the answer.

    Without a body the request is a GET. Raise ConfigError without an API key, or if the server refuses or does not
    answer. `instead` is what the command can do without a server.
    """
    settings = with_dev_key(settings_from(config, {}))
    url = check_url(url or f"http{'s' if settings.tls.cert else ''}://127.0.0.1:{settings.server.port}")
    if not settings.api.key:
        raise ConfigError(
            f"no API key found. Set GREENDOT_API_KEY to the server's key, or {instead}. For a dev server, run this "
            f"command in its working directory: there is no key in {settings.server.data_dir}."
        )
    request = urllib.request.Request(  # noqa: S310  (the scheme is checked above)
        f"{url}{path}",
        None if said is None else msgspec.json.encode(said),
        {"Authorization": f"Bearer {settings.api.key}", "Content-Type": "application/json"},
    )
    try:
        # Without the environment's proxies, which are for the web: servers are near.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
        with opener.open(request, timeout=REQUEST_S) as response:
            data: dict[str, Any] = decode(response.read(), dict)
            return Answer(url, data, _time(response.headers.get("Date")))
    except urllib.error.HTTPError as error:
        raise ConfigError(f"the server at {url} refused the request: {_reason(error)}") from None
    except (OSError, ValueError, msgspec.DecodeError) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(
            f"no server answers at {url}: {getattr(reason, 'strerror', None) or reason}. Start one (greendot serve "
            f"--dev), choose another with --url, or {instead}."
        ) from None


def _time(date: str | None) -> int:
    """Return the time in a Date header in milliseconds; without one, the time of this machine."""
    found = None if date is None else parsedate_tz(date)
    return round(time.time() if found is None else mktime_tz(found)) * 1000


def _reason(error: urllib.error.HTTPError) -> str:
    with error:
        try:
            return str(decode(error.read(), dict)["detail"])
        except (msgspec.DecodeError, KeyError, OSError):
            return f"{error.code} {HTTPStatus(error.code).phrase}"
