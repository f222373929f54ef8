"""Command `greendot plan`: capacity for a number of users."""

from __future__ import annotations

import textwrap
from typing import Any

import click
import msgspec

from greendot.cli._options import json_option, print_json
from greendot.cli._tables import table
from greendot.ops.capacity.constants import CONSTANTS
from greendot.ops.capacity.limits import limits
from greendot.ops.capacity.plan import CapacityPlan, Figure
from greendot.ops.capacity.plan import plan as planned
from greendot.ops.capacity.workload import Workload

WIDTH = 118


class Share(click.ParamType[float]):
    """Parameter type of a share: `10%` or `0.1`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            share = float(str(value).removesuffix("%")) / (100 if str(value).endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 < share <= 1:
            self.fail(f"{value!r} is not a share. Write 10% or 0.1, at most 100%.", param, ctx)
        return share


class PerDay(click.ParamType[tuple[float, bool]]):
    """Parameter type of a rate: `20` or `20/day` of each user, `500/s` of all users at the busiest time."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, bool]:
        text = str(value)
        try:
            rate, of_all = float(text.removesuffix("/day").removesuffix("/s")), text.endswith("/s")
        except ValueError:
            rate, of_all = -1.0, False
        if not 0 <= rate <= 1e12:
            self.fail(f"{value!r} is not a rate. Write 20/day (of each user) or 500/s (of all users).", param, ctx)
        return rate, of_all


@click.command("plan")
@click.option("--users", type=click.IntRange(1, 10_000_000_000), default=1_000_000, help="Number of users. [1,000,000]")
@click.option("--online", type=Share(), default="10%", help="Share of users online at peak. [10%]")
@click.option("--devices", type=click.FloatRange(1, 100), default=1.2, help="Connections per online user. [1.2]")
@click.option("--rooms", type=click.FloatRange(0, 10_000), default=5.0, help="Rooms per user. [5]")
@click.option("--room-size", type=click.FloatRange(1, 10_000_000), default=20.0, help="Members per room. [20]")
@click.option("--messages", type=PerDay(), default="10/day", help="20/day per user, or 500/s of all users. [10/day]")
@click.option("--typing", type=click.FloatRange(0, 1_000), default=1.0, help="Typing starts per message. [1]")
@click.option("--watched", type=click.FloatRange(0, 10_000), default=50.0, help="Users watched per connection. [50]")
@click.option("--connects", type=click.FloatRange(0, 3_600), default=2.0, help="Connects per device and hour. [2]")
@click.option("--notifications", type=click.FloatRange(0, 1e6), default=5.0, help="Notifications per user and day. [5]")
@click.option("--body", type=click.IntRange(1, 65_536), default=128, help="Bytes per message. [128]")
@click.option("--peak", type=click.FloatRange(1, 1_000), default=3.0, help="Load at peak ÷ average load. [3]")
@click.option(
    "--per-node", type=click.IntRange(100, 1_000_000), default=15_000, help="Connections per node, at most. [15,000]"
)
@click.option("--constants", is_flag=True, help="Show the measured costs and their sources.")
@json_option
def plan(messages: tuple[float, bool], constants: bool, as_json: bool, **given: Any) -> None:
    """Estimate the nodes, Redis, PostgreSQL and network that a number of users needs.

    Each figure has its formula. Limits and bottlenecks follow the table. The formulas use measured costs
    (bench/RESULTS.md, on one core of a small machine). Figures marked * are extrapolated.

    \b
      greendot plan --users 200000 --online 5% --room-size 50 --messages 30/day
      greendot plan --users 10000000 --json
    """
    rate, of_all = messages
    said: dict[str, Any] = {"messages_per_s": rate} if of_all else {"messages": rate}
    made = planned(Workload(**given, **said))
    if as_json:
        print_json(_as_json(made))
    elif constants:
        rows = [(f"{one.value:,g} {one.unit}", one.source) for one in CONSTANTS.values()]
        click.echo(table(("MEASURED", "SOURCE"), rows))
    else:
        _show(made)


def _show(made: CapacityPlan) -> None:
    work = made.spread.work
    click.echo(
        f"{work.users:,} users, {work.online * 100:.3g}% of them online with {work.devices:g} devices each: "
        f"{work.connections:,.0f} connections.\n"
        f"Per second at peak: {_rate(work.messages_s)} messages, {_rate(work.typing_s)} typing starts, "
        f"{_rate(work.changes_s)} presence changes, {_rate(work.notifications_s)} notifications.\n"
        f"A message is delivered to {work.listeners:,.1f} connections, a presence change to {work.watchers:,.1f}.\n"
    )
    rows = [
        (f"{one.part}: {one.what}", shown(one) + ("" if one.measured else " *"), one.formula) for one in made.figures
    ]
    click.echo(table(("FIGURE", "VALUE", "FORMULA"), rows))
    click.echo()
    for text in limits(made):
        click.echo(textwrap.fill(text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False))


def shown(one: Figure) -> str:
    """Format a figure with its unit."""
    match one.unit:
        case "bytes":
            return _bytes(one.value)
        case "bytes/s":
            return f"{_bytes(one.value)}/s"
        case "bytes/day":
            return f"{_bytes(one.value)} a day"
        case "/s":
            return f"{_rate(one.value)}/s"
        case "s":
            return f"{one.value:,.1f} s"
        case "cores":
            return f"{one.value:,.2f} cores" if one.value >= 0.1 else f"{one.value:.1g} cores"
        case _:
            return f"{one.value:,.0f}"


def _rate(value: float) -> str:
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _bytes(value: float) -> str:
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value / 1e3:,.1f} KB"


def _as_json(made: CapacityPlan) -> dict[str, Any]:
    return {
        "given": msgspec.to_builtins(made.spread.work),
        "nodes": made.spread.nodes,
        "redis_shards": made.shards,
        "figures": made.figures,
        "limits": [*limits(made)],
        "constants": {
            name: {"value": one.value, "unit": one.unit, "source": one.source} for name, one in CONSTANTS.items()
        },
    }
