"""Command `greendot genconfig`: a file of settings for production, with fresh secrets."""

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
Settings of a Greendot server, written by `greendot genconfig`. There are secrets in it: for its user's eyes only.
Check it with `greendot check-config --config FILE` and `greendot doctor --config FILE`; `greendot defaultconfig` shows
all that can be set.
"""
REMARKS = {
    "auth.secret": "Your app's backend signs tokens with it, and the nodes what they tell each other: the same on all.",
    "auth.longest_token_s": "A token that is lost opens the door for so long.",
    "api.key": "A first key, of tenant `default`. Make one for each app (greendot keys create), then take it out.",
    "privacy.hash_key": "What addresses and browsers of sessions are hashed with.",
    "door.origins": "Pages that may connect, as browsers name them. Empty: those of the server's own host.",
    "door.hosts": "Names by which this server is reached. Empty: any.",
    "door.trusted_proxies": "Whose word is taken for where a client is.",
    "webhooks.secret": "Signs what your app is told; the app checks it.",
}


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default=Path("greendot.toml"))
@click.option("--origin", "origins", multiple=True, metavar="URL", help="A page that connects; may be repeated.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="Where the server is reached; may be repeated.")
@click.option("--proxy", metavar="ADDRESS", help="Who does TLS in front. [default: a proxy on this machine]")
@click.option("--tls-cert", metavar="FILE", help="TLS without a proxy: the certificate.")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port to listen on. [default: 8000]")
@click.option("--engine", metavar="URL", help="The Redis that servers share. [default: memory, for one server]")
@click.option("--store", metavar="URL", help="Where records live. [default: a SQLite file in the data directory]")
@click.option("--data-dir", metavar="FOLDER", help="[default: /var/lib/greendot]")
@click.option("--audience", metavar="TEXT", help="What tokens must have in `aud`.")
@click.option("--webhook", metavar="URL", help="Where your app is told what happens.")
@click.option("--no-input", is_flag=True, help="Ask nothing: what is not given is as it is by default.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def genconfig(file: Path, no_input: bool, force: bool, **given: Any) -> None:
    """Write settings for production to FILE (greendot.toml; - prints them), with fresh secrets, for its owner only.

    In a terminal it asks for what is not given. Nothing is overwritten without --force.

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
    click.echo(f"Wrote {file}, which only you may read (mode 600). Next:")
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
            "host": "0.0.0.0" if outside else "127.0.0.1",  # noqa: S104  (it is written down, and nothing is bound)
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
        ("origins", "Pages that connect (https://app.example.com, …; empty: those of the server's own host)", ""),
        ("names", "Names by which the server is reached (chat.example.com, …; empty: any)", ""),
        ("proxy", "Address of the proxy that does TLS in front (- for none)", None if given["tls_cert"] else HERE[0]),
        ("engine", "Redis that servers share (redis://HOST:PORT; empty: one server alone)", ""),
        ("store", "Where records live (postgresql://…; empty: a SQLite file)", ""),
        ("data_dir", "Folder for files of its own", "/var/lib/greendot"),
        ("audience", "What tokens must have in `aud` (empty: whatever it is)", ""),
    ):
        if begin is not None and not given[key]:
            said = click.prompt(question, default=begin, show_default=bool(begin)).strip()
            given[key] = [one.strip() for one in said.split(",") if one.strip()] if key in LISTS else said or None
    if given["proxy"] == "-":
        given["proxy"] = None
        given["tls_cert"] = click.prompt("File with the certificate")
        given["tls_key"] = click.prompt("File with its key (empty: in the same file)", "", show_default=False) or None
