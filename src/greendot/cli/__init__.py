"""Command line: `greendot` and its commands.

Each group of commands has a file, which is imported when one of its commands is called. `greendot token` and a TAB in
the shell do not load a whole server.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

import click

from greendot import __version__
from greendot.cli._group import Group
from greendot.errors import GreendotError

# File → the commands in it.
COMMANDS = {
    "backup": ["backup", "restore"],
    "completion": ["completion"],
    "disconnect": ["disconnect"],
    "doctor": ["doctor"],
    "documents": ["asyncapi", "openapi"],
    "genconfig": ["genconfig"],
    "health": ["health"],
    "engine": ["nodes", "presence", "sessions", "sweep", "typing"],
    "inspect": ["inspect"],
    "jobs": ["jobs"],
    "keys": ["keys"],
    "migrate": ["migrate"],
    "notify": ["notify"],
    "outbox": ["outbox"],
    "plan": ["plan"],
    "push": ["push"],
    "records": ["inbox", "rooms"],
    "repair": ["repair"],
    "revoke": ["revoke"],
    "serve": ["serve"],
    "config": ["check-config", "defaultconfig"],
    "tail": ["tail"],
    "tenants": ["tenants"],
    "token": ["token"],
    "top": ["top"],
    "user": ["user"],
    "version": ["version"],
    "webhooks": ["webhooks"],
    "worker": ["worker"],
}


class Commands(Group):
    """Group of the commands in COMMANDS. Each is a function of its file, under its own name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Without a command, `--dev` means `serve --dev`: `docker run … IMAGE --dev`."""
        return super().parse_args(ctx, ["serve", *args] if args[:1] == ["--dev"] else args)

    def list_commands(self, ctx: click.Context | None = None) -> list[str]:
        return sorted(name for names in COMMANDS.values() for name in names)

    def get_command(self, ctx: click.Context | None, name: str) -> click.Command | None:
        file = next((file for file, names in COMMANDS.items() if name in names), None)
        if file is None:
            return None
        command: click.Command = getattr(import_module(f"greendot.cli.{file}"), name.replace("-", "_"))
        return command

    def all(self) -> dict[str, click.Command]:
        """Import every command; return them by name."""
        found = {name: self.get_command(None, name) for name in self.list_commands()}
        return {name: command for name, command in found.items() if command is not None}


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="greendot")
def cli() -> None:
    """Run and operate Greendot: presence, typing, rooms and a durable inbox in real time.

    Flags override environment variables (GREENDOT_SECTION_KEY), these override the TOML file, and the file overrides
    the defaults.
    """


def main() -> None:
    """Run the command line. Print a GreendotError as one line, without a traceback, and end with exit code 2."""
    gc.set_threshold(50_000, 50, 50)  # imports make many objects and hardly any garbage
    try:
        cli()
    except GreendotError as error:
        click.echo(f"greendot: {error}", err=True)
        sys.exit(2)
