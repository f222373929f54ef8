"""Command `greendot genconfig`: settings file for production, with fresh secrets."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from greendot.config import load
from greendot.ops.files import put_in_place, refuse_to_overwrite

HERE = ("127.0.0.1", "::1")
LISTS = ("origins", "names")  # answers with commas between values
HEAD = """\
Settings of a Greendot server, written by `greendot genconfig`. This file has secrets: keep it private to its owner.
Check it with `greendot check-config --config FILE` and `greendot doctor --config FILE`. `greendot defaultconfig`
prints all settings.
"""
REMARKS = {
    "auth.secret": "Signs tokens (in your app's backend) and messages between nodes. Use the same secret on all nodes.",
    "auth.longest_token_s": "Longest lifetime of a token, in seconds. A stolen token is valid for at most this time.",
    "api.key": "First API key, of tenant `default`. Create a key for each app (greendot keys create), then remove it.",
    "privacy.hash_key": "Key for the hashes of addresses and browsers of sessions.",
    "door.origins": "Origins of the pages that may connect. Empty: only pages of the server's own host.",
    "door.hosts": "Host names of this server. Empty: any.",
    "door.trusted_proxies": "Proxies that are trusted to forward the client's address.",
    "webhooks.secret": "Signs webhook requests. Your app verifies the signature.",
}


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default=Path("greendot.toml"))
@click.option(
    "--origin", "origins", multiple=True, metavar="URL", help="Origin of a page that may connect; may be repeated."
)
@click.option("--name", "names", multiple=True, metavar="HOST", help="Host name of the server; may be repeated.")
@click.option(
    "--proxy", metavar="ADDRESS", help="Address of the proxy that does TLS. [default: a proxy on this machine]"
)
@click.option("--tls-cert", metavar="FILE", help="Certificate, for TLS without a proxy.")
@click.option("--tls-key", metavar="FILE", help="Private key of the certificate.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port to listen on. [default: 8000]")
@click.option("--engine", metavar="URL", help="Redis that the servers share. [default: memory, for one server]")
@click.option("--store", metavar="URL", help="Store for records. [default: a SQLite file in the data directory]")
@click.option("--data-dir", metavar="FOLDER", help="Data directory. [default: /var/lib/greendot]")
@click.option("--audience", metavar="TEXT", help="Required `aud` claim of tokens.")
@click.option("--webhook", metavar="URL", help="URL of your app that receives webhook events.")
@click.option("--no-input", is_flag=True, help="Do not ask; use the defaults for options that are not given.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def genconfig(file: Path, no_input: bool, force: bool, **given: Any) -> None:
    """Write settings for production to FILE, with fresh secrets. Only its owner can read FILE.

    Without FILE the name is greendot.toml; - prints the settings. In a terminal the command asks for values that are
    not given. An existing file is overwritten only with --force.

    \b
      greendot genconfig
      greendot genconfig /etc/greendot.toml --origin https://app.example.com --engine redis://10.0.0.5 --no-input
    """
    printed = str(file) == "-"
    if not printed:
        refuse_to_overwrite(file, force=force)
    if not no_input and sys.stdin.isatty():
        _ask(given)
    text = rendered(sections(given))
    if printed:
        click.echo(text, nl=False)
        return
    with put_in_place(file, force=force) as beside:
        beside.write_text(text)
    click.echo(f"Wrote {file}. Only you can read it (mode 600). Next steps:")
    click.echo(f"  greendot doctor --config {file}")
    if given["store"] and given["store"].startswith("postgres"):
        click.echo(f"  greendot migrate --config {file}")
    click.echo(f"  greendot serve --config {file}")


def sections(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sections to write. Raise ConfigError with the mistakes in the given values."""
    own_tls = bool(given["tls_cert"])
    proxies = [given["proxy"]] if given["proxy"] else [] if own_tls else list(HERE)
    outside = own_tls or given["proxy"] not in (None, *HERE)
    made: dict[str, dict[str, Any]] = {
        "server": {
            "host": "0.0.0.0" if outside else "127.0.0.1",  # noqa: S104  (a value in a file; nothing is bound)
            "port": given["port"] or 8000,
            "data_dir": given["data_dir"] or "/var/lib/greendot",
        },
        "auth": {"secret": fresh(), "audience": given["audience"], "longest_token_s": 3600},
        "api": {"key": fresh()},
        "privacy": {"hash_key": fresh()},
        "door": {"origins": list(given["origins"]), "hosts": list(given["names"]), "trusted_proxies": proxies},
        "tls": {"cert": given["tls_cert"], "key": given["tls_key"]},
        "engine": {"url": given["engine"]},
        "store": {"url": given["store"]},
        "webhooks": {"url": given["webhook"], "secret": fresh() if given["webhook"] else None},
    }
    kept = {name: {key: value for key, value in keys.items() if value is not None} for name, keys in made.items()}
    kept = {name: keys for name, keys in kept.items() if keys}
    load(None, {}, kept)
    return kept


def fresh() -> str:
    """Return a new random secret."""
    return secrets.token_hex(32)


def rendered(made: dict[str, dict[str, Any]]) -> str:
    lines = [f"# {line}" for line in HEAD.splitlines()]
    for section, keys in made.items():
        lines += ["", f"[{section}]"]
        for key, value in keys.items():
            if remark := REMARKS.get(f"{section}.{key}"):
                lines.append(f"# {remark}")
            lines.append(f"{key} = {msgspec.json.encode(value).decode()}")
    return "\n".join([*lines, ""])


def _ask(given: dict[str, Any]) -> None:
    """Ask for the values that were not given."""
    for key, question, begin in (
        ("origins", "Origins of pages that may connect (https://app.example.com, …; empty: the server's own host)", ""),
        ("names", "Host names of the server (chat.example.com, …; empty: any)", ""),
        ("proxy", "Address of the proxy that does TLS (- for none)", None if given["tls_cert"] else HERE[0]),
        ("engine", "Redis that the servers share (redis://HOST:PORT; empty: a single server)", ""),
        ("store", "Store for records (postgresql://…; empty: a SQLite file)", ""),
        ("data_dir", "Data directory", "/var/lib/greendot"),
        ("audience", "Required `aud` claim of tokens (empty: any)", ""),
    ):
        if begin is not None and not given[key]:
            said = click.prompt(question, default=begin, show_default=bool(begin)).strip()
            given[key] = [one.strip() for one in said.split(",") if one.strip()] if key in LISTS else said or None
    if given["proxy"] == "-":
        given["proxy"] = None
        given["tls_cert"] = click.prompt("Certificate file")
        given["tls_key"] = (
            click.prompt("Private key file (empty: in the certificate file)", "", show_default=False) or None
        )
