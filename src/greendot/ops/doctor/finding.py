"""A finding: what was seen, why it matters, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

Weight = Literal["error", "warning", "note", "ok"]
WEIGHTS: tuple[Weight, ...] = ("error", "warning", "note", "ok")  # the heaviest first


class Finding(Struct, frozen=True):
    """One of them.

    `error`: a server would not start so, would lose data, or lets anybody in. `warning`: weak, or it will be felt under
    load. `note`: right for some. `ok`: was looked at, and nothing is to be done.
    """

    weight: Weight
    about: str  # a setting, a server, or what was looked at
    found: str
    why: str = ""
    do: str = ""  # the setting or the command


Findings = Iterator[Finding]


def error(about: str, found: str, why: str, do: str) -> Finding:
    return Finding("error", about, found, why, do)


def warning(about: str, found: str, why: str, do: str) -> Finding:
    return Finding("warning", about, found, why, do)


def note(about: str, found: str, why: str, do: str) -> Finding:
    return Finding("note", about, found, why, do)


def ok(about: str, found: str) -> Finding:
    return Finding("ok", about, found)


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """The heaviest first, else as they were found."""
    return sorted(findings, key=lambda finding: WEIGHTS.index(finding.weight))


def exit_code(findings: Iterable[Finding]) -> int:
    """2 with errors, 1 with warnings, 0 with nothing worse than notes."""
    weights = {finding.weight for finding in findings}
    return 2 if "error" in weights else 1 if "warning" in weights else 0


def or_ok(about: str, found: str, findings: Iterable[Finding]) -> Findings:
    """The findings, and that all is well if there are none worse than notes."""
    kept = list(findings)
    yield from kept
    if exit_code(kept) == 0:
        yield ok(about, found)
