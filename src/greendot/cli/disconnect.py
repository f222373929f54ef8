"""Command `greendot disconnect`: close a session, all sessions of a user, or all of a node."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from greendot.cli._admin_socket import Where, dashboard_options, open_live, some_tenant_option
from greendot.cli._options import json_option, print_json
from greendot.cli._store import on_a_loop
from greendot.config import check_id
from greendot.errors import ConfigError

MOST_REASON = 30  # characters that nodes pass on to clients
REASON = "disconnected by the operator"
FEW = 1  # sessions that are closed without confirmation


@click.command()
@click.option("--session", metavar="S", help="Close this session. `greendot inspect user` shows sessions.")
@click.option("--user", metavar="U", help="Close all sessions of this user, on all nodes.")
@click.option("--node", metavar="N", help="Close all sessions on this node. `greendot top` shows nodes.")
@some_tenant_option
@click.option(
    "--code",
    type=click.Choice(["4503", "4000"]),
    default="4503",
    show_default=True,
    help="Close code. 4503: clients do not reconnect. 4000: clients reconnect, to another node if possible.",
)
@click.option("--reason", default=REASON, show_default=True, metavar="TEXT", help="Close reason for the clients.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@dashboard_options
def disconnect(
    session: str | None,
    user: str | None,
    node: str | None,
    tenant: str | None,
    code: str,
    reason: str,
    yes: bool,
    as_json: bool,
    find_server: Callable[[], Where],
) -> None:
    """Close a session, all sessions of a user, or all sessions on a node.

    \b
    A disconnect closes connections; tokens stay valid. After 4503 a client does not reconnect by itself, but a user
    who opens the app again is admitted. `greendot revoke` also revokes the token (4501).

    \b
    greendot disconnect --session mjZo-JhjZjhoos6
    greendot disconnect --user ann --reason 'moved to another plan' --yes
    greendot disconnect --node mjZo --code 4000 --yes
    """
    named = {name: given for name, given in (("session", session), ("user", user), ("node", node)) if given is not None}
    if len(named) != 1:
        raise click.UsageError("Give exactly one of --session, --user and --node.")
    for name, given in (*named.items(), *([("tenant", tenant)] if tenant is not None else ())):
        check_id(name, given)
    if len(reason) > MOST_REASON:
        raise click.UsageError(f"--reason may have at most {MOST_REASON} characters, because a close frame is small.")
    act = {"type": "act", "do": "disconnect", "tenant": tenant, "code": int(code), "reason": reason, **named}
    answer = on_a_loop(_disconnect(find_server(), act, yes=yes))
    if not answer["count"]:
        ((what, name),) = named.items()
        raise ConfigError(
            f"no connected session found for {what} {name!r}{'' if tenant is None else f' in tenant {tenant}'}."
        )
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{answer['done'][0].upper()}{answer['done'][1:]}.")


async def _disconnect(at: Where, act: dict[str, Any], *, yes: bool) -> dict[str, Any]:
    async with open_live(at) as live:
        offer = await live.ask(**act)
        if not offer["count"]:
            return {"count": 0}
        if offer["count"] > FEW and not yes:
            _confirm(offer)
        return await live.ask(type="confirm", number=offer["number"])


def _confirm(offer: dict[str, Any]) -> None:
    """Ask for confirmation, with the server's sentence about the current state. Raise ConfigError without consent."""
    effect = offer["says"]
    if not sys.stdin.isatty():
        raise ConfigError(f"{effect} To confirm, add --yes.")
    click.echo(effect, err=True)
    if not click.confirm(offer["title"], default=False, prompt_suffix=" ", err=True):
        raise ConfigError("cancelled; no session was closed.")
