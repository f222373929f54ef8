"""Options and output that several commands share."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from greendot.config import check_id

engine_option = click.option("--engine", metavar="URL", help="Engine of the servers: redis://HOST:PORT.")
tenant_option = click.option("--tenant", default="default", show_default=True, help="Tenant of the users and rooms.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")


def check_ids(what: str, names: tuple[str, ...], tenant: str | None) -> None:
    for name in names:
        check_id(what, name)
    if tenant is not None:
        check_id("tenant", tenant)


def print_json(answer: Any) -> None:
    click.echo(msgspec.json.encode(answer))


limit_option = click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Show at most N."
)
after_option = click.option("--after", metavar="ID", help="Continue after this id.")


def print_next_page(count: int, limit: int, last: str) -> None:
    """Print the option for the next page, if this page is full."""
    if count == limit:
        click.echo(f"There may be more: --after {last}")
