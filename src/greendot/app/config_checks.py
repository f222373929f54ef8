"""Checks of settings that need keys and files, beyond the settings' own rules."""

from __future__ import annotations

import msgspec

from greendot.app.jobs import check_timetables
from greendot.app.tokens import make_tokens
from greendot.app.webhooks import call_terms
from greendot.clock import SystemClock
from greendot.config import LOCAL, Check, Settings
from greendot.engine.redis.url import parse
from greendot.errors import ConfigError
from greendot.transport.tls import Certificate


def _check_keys(settings: Settings) -> None:
    # Remote keys are fetched when a server runs.
    make_tokens(msgspec.structs.replace(settings.auth, jwks_url=""), SystemClock().monotonic)


def _check_accounts(settings: Settings) -> None:
    if settings.pushes:
        from greendot.app.push import check_accounts

        check_accounts(settings)


def check_secret(settings: Settings) -> None:
    """Raise ConfigError without the secret that tokens, or nodes that share a Redis, need."""
    auth = settings.auth
    if not (auth.secret or auth.keys or auth.jwks_url):
        raise ConfigError(
            "auth.secret is not set, so no token could be verified. Set GREENDOT_AUTH_SECRET to a random secret "
            "(openssl rand -hex 32), configure other keys (auth.keys, auth.jwks_url), or try Greendot with: "
            "greendot serve --dev"
        )
    if not auth.secret and settings.engine.url not in ("memory", LOCAL):
        raise ConfigError(
            "auth.secret is not set, but nodes that share a Redis sign their messages with it. Set "
            "GREENDOT_AUTH_SECRET to the same secret on all nodes (openssl rand -hex 32). To refuse tokens signed with "
            "it, list other algorithms in auth.algorithms, without HS256."
        )


def _check_secret_unless_dev(settings: Settings) -> None:
    if not settings.server.dev:  # dev mode generates the secret
        check_secret(settings)


CHECKS: tuple[Check, ...] = (
    _check_keys,
    lambda settings: settings.engine.url in ("memory", LOCAL) or parse(settings.engine.url).context(),
    lambda settings: settings.tls.cert and Certificate(settings.tls.cert, settings.tls.key),
    lambda settings: settings.webhooks.ca_file and call_terms(settings),
    check_timetables,
    _check_accounts,
)
SERVER_CHECKS: tuple[Check, ...] = (*CHECKS, _check_secret_unless_dev)
