"""How commands ask a running server, with its API key."""

from __future__ import annotations

import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Any

import msgspec

from greendot.config import Settings
from greendot.errors import ConfigError
from greendot.protocol.decoding import decode

REQUEST_S = 10.0


def ask(settings: Settings, url: str | None, path: str, said: dict[str, Any]) -> dict[str, Any]:
    """The answer of the server at `url`, or else of the one of the settings on this machine, to what is said."""
    url = url or f"http://127.0.0.1:{settings.server.port}"
    if not settings.api.key:
        raise ConfigError(
            "there is no API key to show to the server: set GREENDOT_API_KEY to the server's (a dev server's is found "
            f"when this is called in its folder: {settings.server.data_dir}/ here has none), or write past it with "
            "--store URL."
        )
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url!r} must begin with http:// or https://.")
    request = urllib.request.Request(  # noqa: S310  (what it may begin with is checked above)
        f"{url.rstrip('/')}{path}",
        msgspec.json.encode(said),
        {"Authorization": f"Bearer {settings.api.key}", "Content-Type": "application/json"},
    )
    try:
        # Not by a proxy that the environment names for pages of the web: servers are near.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=REQUEST_S) as response:
            answer: dict[str, Any] = decode(response.read(), dict)
            return answer
    except urllib.error.HTTPError as error:
        raise ConfigError(f"the server at {url} refused it: {_reason(error)}") from None
    except (OSError, ValueError, msgspec.DecodeError) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(
            f"no server answers at {url}: {getattr(reason, 'strerror', None) or reason}. Start one (greendot serve "
            "--dev), name another with --url, or write past it with --store URL."
        ) from None


def _reason(error: urllib.error.HTTPError) -> str:
    with error:
        try:
            return str(decode(error.read(), dict)["detail"])
        except (msgspec.DecodeError, KeyError, OSError):
            return f"{error.code} {HTTPStatus(error.code).phrase}"
