"""Durations on the command line: `90d`, `24h`, `30min`, `45s`."""

from __future__ import annotations

import re

import click

_UNITS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "m": 60_000, "s": 1_000}
_LONGEST_MS = 3_650 * 86_400_000
_match = re.compile(r"([0-9]{1,9}) ?(d|h|min|m|s)\Z", re.ASCII).match


class Duration(click.ParamType):  # type: ignore[type-arg]  # older releases of click have no arguments for it
    """Parameter type of a duration, converted to milliseconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _match(str(value))
        if found is None:
            self.fail(f"{value!r} is not a duration. Write a number and d, h, min or s: 90d, 24h, 30min.", param, ctx)
        ms = int(found[1]) * _UNITS[found[2]]
        if ms > _LONGEST_MS:
            self.fail(f"{value!r} is longer than ten years.", param, ctx)
        return ms
