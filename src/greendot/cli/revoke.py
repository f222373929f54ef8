"""Command `greendot revoke`: revoke a token, a session, or all tokens of a user or tenant.

The command calls a server, or writes to the store directly.
"""

from __future__ import annotations

from pathlib import Path

import click

from greendot.auth.model import EVERY_TENANT, Revocation, RevocationKind
from greendot.cli._durations import Duration
from greendot.cli._http import ask, check_target, url_option
from greendot.cli._options import json_option, print_json
from greendot.cli._settings import config_option
from greendot.cli._store import StoreAccess, store_option
from greendot.clock import SystemClock
from greendot.config import check_id

PULLED_S = 15  # between two reads of revocations by servers


@click.command()
@click.option("--user", metavar="U", help="Revoke all tokens of this user issued until now.")
@click.option("--all", "everything", is_flag=True, help="Revoke all tokens of the tenant issued until now.")
@click.option("--all-tenants", is_flag=True, help="With --store: revoke all tokens of all tenants issued until now.")
@click.option("--ago", type=Duration(), help="With --user or --all: only tokens older than this, such as 2h.")
@click.option("--jti", metavar="J", help="Revoke the token with this id; --user names its user.")
@click.option("--session", metavar="S", help="Revoke this session and its token. `greendot sessions` shows sessions.")
@url_option
@store_option
@click.option("--tenant", help="With --store: tenant of the token or user. [default: default]")
@json_option
@config_option
def revoke(
    user: str | None,
    everything: bool,
    all_tenants: bool,
    ago: int | None,
    jti: str | None,
    session: str | None,
    url: str | None,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    config: Path | None,
) -> None:
    """Revoke a token, a session, all tokens of a user, or all tokens of a tenant.

    Servers close the sockets, and refuse the tokens from then on. The command calls a running server with its API key
    (GREENDOT_API_KEY; the key of a dev server is in its server.data_dir). All servers apply the revocation at once.
    With --store the command writes directly to the store.
    """
    if all_tenants and (store is None or tenant is not None):
        raise click.UsageError("--all-tenants needs --store and excludes --tenant.")
    whose = EVERY_TENANT if all_tenants else tenant or "default"
    kind, value = _what(user, jti, session, whose if everything or all_tenants else None)
    if ago is not None and kind not in ("user", "tenant"):
        raise click.UsageError("--ago needs --user or --all, and excludes --jti and --session.")
    before = SystemClock().now_ms() - (ago or 0)
    check_target(url, store, tenant)
    if store is not None:
        if not all_tenants:
            check_id("tenant", whose)
        _write(StoreAccess(store, config), whose, kind, value, before)
        answer, how = {"closed": None}, f"Servers close the sockets within {PULLED_S} s."
    else:
        said: dict[str, str | int | None] = {"jti": jti, "session": session, "user": user, "all": everything or None}
        said["before"] = before if ago is not None else None
        asked = {name: given for name, given in said.items() if given is not None}
        answer = ask(config, url, "/v1/tokens/revoke", asked).data
        how = f"Sockets closed: {answer['closed']}."
    if as_json:
        print_json(answer)
    else:
        click.echo(f"Revoked {_named(kind, value, store is not None)}. {how}")


def _named(kind: RevocationKind, value: str, knows_tenant: bool) -> str:
    if kind != "tenant":
        return f"{'the token' if kind == 'jti' else kind} {value}"
    if value == EVERY_TENANT:
        return "all tokens of all tenants"
    return f"all tokens of tenant {value}" if knows_tenant else "all tokens of the key's tenant"


def _what(user: str | None, jti: str | None, session: str | None, tenant: str | None) -> tuple[RevocationKind, str]:
    """Return the kind and value to revoke. `tenant` is given for all tokens of a tenant, or of all tenants."""
    if tenant is not None:
        if (user, jti, session) != (None, None, None):
            raise click.UsageError("--all and --all-tenants exclude --user, --jti and --session.")
        return "tenant", tenant
    if jti is not None and session is None:
        if not 1 <= len(jti) <= 200:
            raise click.UsageError("--jti must have 1 to 200 characters.")
        return "jti", jti
    if session is not None and jti is None and user is None:
        return "session", check_id("session", session)
    if user is not None and session is None:
        return "user", check_id("user", user)
    raise click.UsageError(
        "Give one of --user, --jti, --session and --all. With --jti, --user names the user of the token."
    )


def _write(access: StoreAccess, tenant: str, kind: RevocationKind, value: str, before: int) -> None:
    ends_at = before + access.settings.auth.longest_token_ms
    revocation = Revocation(tenant, kind, value, ends_at, before if kind in ("user", "tenant") else 0)
    access.run(lambda store: store.put_revocation(revocation))
