"""The `greendot` command. One file per group of commands."""

from __future__ import annotations

import json
import platform
import sys

import click

from greendot import __version__
from greendot.cli.asyncapi import asyncapi
from greendot.cli.backup import backup, restore
from greendot.cli.completion import completion
from greendot.cli.config import check_config, defaultconfig
from greendot.cli.disconnect import disconnect
from greendot.cli.doctor import doctor
from greendot.cli.genconfig import genconfig
from greendot.cli.health import health
from greendot.cli.inspect import nodes, presence, sessions, sweep, typing
from greendot.cli.inspecting import inspect
from greendot.cli.jobs import jobs
from greendot.cli.keys import keys
from greendot.cli.migrate import migrate
from greendot.cli.notify import notify
from greendot.cli.openapi import openapi
from greendot.cli.outbox import outbox
from greendot.cli.plan import plan_command
from greendot.cli.push import push
from greendot.cli.records import inbox, rooms
from greendot.cli.repair import repair
from greendot.cli.revoke import revoke
from greendot.cli.serve import serve
from greendot.cli.tail import tail
from greendot.cli.tenants import tenants
from greendot.cli.token import token
from greendot.cli.top import top
from greendot.cli.user import user
from greendot.cli.webhooks import webhooks
from greendot.cli.worker import worker
from greendot.errors import GreendotError
from greendot.store.schema import steps


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="greendot")
def cli() -> None:
    """Greendot: who is online, who is typing, who is in the room, and what nobody may miss.

    Settings come from flags, then the environment (GREENDOT_SECTION_KEY), then the TOML file, then defaults.
    """


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, with the Python and the tables it works with.")
def version(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        tables = {store: steps(store)[-1].number for store in ("sqlite", "postgres")}
        click.echo(json.dumps({"version": __version__, "python": platform.python_version(), "tables": tables}))
    else:
        click.echo(f"greendot {__version__}")


looking = top, inspect, tail, nodes, presence, sessions, typing, rooms, inbox
changing = disconnect, sweep, migrate, outbox, webhooks, push, jobs, repair, backup, restore
finding_out = openapi, asyncapi, doctor, health, plan_command, version
setting_up = check_config, genconfig, defaultconfig, completion
running = serve, worker
people = token, revoke, notify, keys, tenants, user
for command in (*running, *people, *looking, *changing, *setting_up, *finding_out):
    cli.add_command(command)


def main() -> None:
    """Entry point: errors a person can act on are one line, without a traceback."""
    try:
        cli()
    except GreendotError as error:
        click.echo(f"greendot: {error}", err=True)
        sys.exit(2)
