"""Findings, each with its reason and remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

Weight = Literal["error", "warning", "note", "ok"]
WEIGHTS: tuple[Weight, ...] = ("error", "warning", "note", "ok")  # the heaviest first


class Finding(Struct, frozen=True):
    """Result of one check.

    `error`: a server would not start, would lose data, or would admit anyone. `warning`: weak, or a problem
    under load. `note`: right for some set-ups. `ok`: checked, nothing to do.
    """

    weight: Weight
    about: str  # a setting, a server, or another subject of the check
    found: str
    why: str = ""
    do: str = ""  # setting to change or command to run


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
    """Return the findings with the heaviest first, otherwise in their order."""
    return sorted(findings, key=lambda finding: WEIGHTS.index(finding.weight))


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 2 with errors, 1 with warnings, 0 with nothing worse than notes."""
    weights = {finding.weight for finding in findings}
    return 2 if "error" in weights else 1 if "warning" in weights else 0


def or_ok(about: str, found: str, findings: Iterable[Finding]) -> Findings:
    """Yield the findings, and an `ok` if none is worse than a note."""
    kept = list(findings)
    yield from kept
    if exit_code(kept) == 0:
        yield ok(about, found)
