"""Command `greendot doctor`: findings about the settings, the services and the machine of a server."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import click
import uvloop

from greendot.app.config_checks import SERVER_CHECKS
from greendot.cli._options import json_option, print_json
from greendot.cli._settings import config_option, dev_file, dev_secret, given, with_dev_key
from greendot.cli._tables import printable, several
from greendot.cli.serve import server_options
from greendot.config import Settings, load, strange_variables
from greendot.errors import ConfigError
from greendot.ops import probes
from greendot.ops.doctor.diagnosis import Facts, diagnosis, invalid_settings
from greendot.ops.doctor.finding import Finding, by_weight, exit_code, note
from greendot.transport.tls import certificate_facts

WIDTH = 100
_LABELS = {"error": "ERROR", "warning": "WARNING", "note": "note", "ok": "ok"}
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan", "ok": "green"}


@click.command()
@server_options
@click.option(
    "--connections",
    type=click.IntRange(1, 10_000_000),
    default=10_000,
    show_default=True,
    help="Connections expected on this machine.",
)
@json_option
@config_option
def doctor(flags: dict[str, dict[str, Any]], connections: int, as_json: bool, config: Path | None) -> None:
    """Check settings, engine, store and machine, and print findings with remedies.

    The command changes nothing and shows no secrets. Give it the same flags, environment and --config as the server.
    Exit code: 2 if there are errors, 1 if there are only warnings, otherwise 0.
    """
    why, do = "It may belong to another program.", "If you meant a setting of Greendot, correct the name."
    findings = [note("environment", text, why, do) for text in strange_variables(os.environ)]
    try:
        settings, notes = _read(config, given(flags))
    except ConfigError as error:
        findings += invalid_settings(error.mistakes)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            facts = runner.run(_facts(settings, config, flags["server"]["host"], connections))
        findings = [*diagnosis(settings, facts), *findings, *notes]
    findings = by_weight(findings)
    if as_json:
        print_json({"findings": findings} | _counts(findings))
    else:
        _show(findings)
    sys.exit(exit_code(findings))


def _read(config: Path | None, flags: dict[str, dict[str, Any]]) -> tuple[Settings, list[Finding]]:
    """Load the settings, and return them with notes for the user.

    The settings may lack a secret and keys for tokens. If the data folder then has the secret of a dev server, load the
    settings as if --dev were given.
    """
    settings, notes = load(config, os.environ, flags), []
    auth = settings.auth
    if not (settings.server.dev or auth.secret or auth.keys or auth.jwks_url) and dev_secret(settings):
        flags |= {"server": flags.get("server", {}) | {"dev": True}}
        where = dev_file(settings, "secret")
        notes = [
            note(
                "server.dev",
                f"no secret is set, but {where} has the secret of a dev server: the settings were checked as if --dev "
                "were given",
                "A production server needs its own secret.",
                "To check a production server, give its settings: greendot doctor --config FILE",
            )
        ]
    settings = load(config, os.environ, flags, SERVER_CHECKS)
    return with_dev_key(settings) if settings.server.dev else settings, notes


async def _facts(settings: Settings, config: Path | None, host: str | None, connections: int) -> Facts:
    servers, database = await asyncio.gather(probes.of_engine(settings), probes.of_postgres(settings))
    return Facts(
        machine=probes.of_machine(),
        connections=connections,
        redis=servers,
        postgres=database,
        sqlite=probes.of_sqlite(settings),
        tables=probes.tables(settings),
        certificate=certificate_facts(settings.tls.cert) if settings.tls.cert else None,
        files=probes.of_files(settings, config),
        host_flag=host,
        dev_secret=dev_secret(settings),
    )


def _show(findings: list[Finding]) -> None:
    for finding in findings:
        label = click.style(f"{_LABELS[finding.weight]:8}", fg=_COLOURS[finding.weight])
        _print(f"{label} ", f"{finding.about}: {finding.found}")
        for text in (finding.why, f"→ {finding.do}" if finding.do else ""):
            if text:
                _print(" " * 9, text)
    counts = _counts(findings)
    click.echo(f"\n{several(counts['errors'], 'error')}, {several(counts['warnings'], 'warning')}, "
               f"{several(counts['notes'], 'note')}, {counts['ok']} ok.")  # fmt: skip


def _print(begin: str, text: str) -> None:
    lines = textwrap.wrap(printable(text), WIDTH - 9, break_long_words=False, break_on_hyphens=False)
    click.echo(begin + f"\n{' ' * 9}".join(lines))


def _counts(findings: list[Finding]) -> dict[str, int]:
    count = Counter(finding.weight for finding in findings)
    return {"errors": count["error"], "warnings": count["warning"], "notes": count["note"], "ok": count["ok"]}
