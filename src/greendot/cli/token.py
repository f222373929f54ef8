"""Command `greendot token`: token for tests."""

from __future__ import annotations

import re
from pathlib import Path

import click

from greendot.app.tokens import make_tokens
from greendot.cli._settings import as_running_server, config_option, settings_from
from greendot.clock import SystemClock
from greendot.config import check_id
from greendot.errors import ConfigError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MOST_S = 36_500 * 86_400


def parse_ttl(text: str) -> float:
    """Return the seconds of `90`, `90s`, `15m`, `1h` or `30d`. Raise ConfigError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if not 0 < seconds <= _MOST_S:
        raise ConfigError(
            f"--ttl {text[:64]!r} is not a duration. Write a number and s, m, h or d, such as 1h; at most 36500d."
        )
    return seconds


@click.command()
@click.argument("user")
@click.option("--tenant", default="default", show_default=True, help="Tenant of the user.")
@click.option(
    "--room", "rooms", multiple=True, metavar="R", help="Room that the user may join; * is a wildcard. May be repeated."
)
@click.option("--name", help="Display name of the user.")
@click.option("--ttl", default="1h", show_default=True, help="Lifetime of the token: 90s, 15m, 1h, 30d.")
@config_option
def token(user: str, tenant: str, rooms: tuple[str, ...], name: str | None, ttl: str, config: Path | None) -> None:
    """Print a token for USER, signed with the secret of the server or dev server."""
    settings = as_running_server(settings_from(config, {}))
    tokens = make_tokens(settings.auth, SystemClock().monotonic)
    if not tokens.can_make:
        raise ConfigError(
            "no secret found to sign the token with. Set GREENDOT_AUTH_SECRET to the server's secret, or start a dev "
            "server (greendot serve --dev) and run this command in its working directory: there is no secret in "
            f"{settings.server.data_dir}."
        )
    now = SystemClock().now_ms()
    made = tokens.make(
        check_id("user", user),
        now,
        parse_ttl(ttl),
        tenant=check_id("tenant", tenant),
        name=name,
        rooms=list(rooms) or None,
    )
    tokens.read(made, now)  # raises for a room pattern that servers refuse
    click.echo(made)
