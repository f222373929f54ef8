"""Outcome that the Autobahn suite must have, and the page that shows it (docs/reference/rfc6455.md)."""

from __future__ import annotations

from dataclasses import dataclass

SUITE = "25.10.1"  # version of the package autobahntestsuite
FAMILIES = {  # by the first number of a case: name, cases
    1: ("Framing", 16),
    2: ("Pings and pongs", 11),
    3: ("Reserved bits", 7),
    4: ("Opcodes", 10),
    5: ("Fragmentation", 20),
    6: ("UTF-8", 145),
    7: ("Close handshake", 37),
    9: ("Limits and performance", 54),
    10: ("Automatic fragmentation", 1),
    12: ("Compression, messages of several kinds", 90),
    13: ("Compression, different parameters", 126),
}
TOTAL = sum(count for _, count in FAMILIES.values())


@dataclass(frozen=True)
class Outcome:
    """Judgement of the suite on a case, and the close code that it received."""

    behaviour: str
    code: int | None = None


@dataclass(frozen=True)
class Exemption:
    """Cases without a strict pass, and the reason."""

    cases: tuple[str, ...]  # a name that ends with a dot stands for all cases below it
    counts: dict[int, int]  # number of these cases, by family
    outcome: Outcome  # `code` None: any
    reason: str

    def covers(self, case: str) -> bool:
        return any(case == name or (name.endswith(".") and case.startswith(name)) for name in self.cases)


def _numbered(prefix: str, numbers: range) -> tuple[str, ...]:
    return tuple(f"{prefix}.{number}" for number in numbers)


EXEMPTIONS = (
    Exemption(
        ("1.2.", "9.2.1", *_numbered("9.4", range(1, 7)), "9.8."),
        {1: 8, 9: 13},
        Outcome("FAILED", 1003),
        "The protocol has no binary messages: the server refuses them with 1003.",
    ),
    Exemption(
        (
            *_numbered("9.1", range(2, 7)),
            *_numbered("9.2", range(2, 7)),
            *_numbered("9.3", range(3, 10)),
            *_numbered("9.4", range(7, 10)),
            "9.5.",
            "9.6.",
        ),
        {9: 32},
        Outcome("FAILED", 1009),
        "Messages of more than 64 KiB are refused with 1009. These cases send up to 16 MiB.",
    ),
    Exemption(
        ("9.3.1", "9.3.2"),
        {9: 2},
        Outcome("FAILED", 4502),
        "A connection without a session may send few frames. These cases send 4 MiB in fragments of 64 and 256 bytes.",
    ),
    Exemption(
        ("6.4.3", "6.4.4"),
        {6: 2},
        Outcome("NON-STRICT", 1007),
        "Text is checked when a frame is complete. Bytes of an incomplete frame wait until then; a frame has at most "
        "64 KiB.",
    ),
    Exemption(
        ("7.1.6", "7.13.1", "7.13.2"),
        {7: 3},
        Outcome("INFORMATIONAL"),
        "The suite only records the behaviour; RFC 6455 does not require one.",
    ),
    Exemption(
        ("12.", "13."),
        {12: 90, 13: 126},
        Outcome("UNIMPLEMENTED"),
        "The server does not accept permessage-deflate ([ADR 76](../adr/0076-no-compression.md)).",
    ),
)

# The families whose exceptions are limits of the product, in an echo without these limits.
LIFTED = (1, 9)
LIFTED_EXEMPTIONS = (
    Exemption(
        _numbered("9.4", range(1, 9)),
        {9: 8},
        Outcome("FAILED", 1003),
        "Binary messages in fragments are refused by the framing itself, because no protocol of the server has them.",
    ),
)


def exemption_of(case: str, exemptions: tuple[Exemption, ...] = EXEMPTIONS) -> Exemption | None:
    """Return the exemption of a case, or None if it must pass strictly."""
    return next((exemption for exemption in exemptions if exemption.covers(case)), None)


def deviations(found: dict[str, Outcome], *, lifted: bool = False) -> list[str]:
    """Return the differences between the outcome of a run and the expected one, as lines to print."""
    exemptions = LIFTED_EXEMPTIONS if lifted else EXEMPTIONS
    lines = []
    for number, (name, count) in FAMILIES.items():
        if lifted and number not in LIFTED:
            continue
        have = sum(case.startswith(f"{number}.") for case in found)
        if have != count:
            lines.append(f"{number} {name}: {have} cases were run, {count} were expected")
    for case, outcome in found.items():
        exemption = exemption_of(case, exemptions)
        wanted = Outcome("OK") if exemption is None else exemption.outcome
        if outcome.behaviour != wanted.behaviour or wanted.code not in (None, outcome.code):
            lines.append(f"{case}: {outcome}, expected {wanted}")
    for exemption in exemptions:
        for number, count in exemption.counts.items():
            have = sum(case.startswith(f"{number}.") and exemption.covers(case) for case in found)
            if have != count:
                lines.append(f"{number}: {have} cases are exempt, {count} were expected: {exemption.reason}")
    return lines


_HEAD = f"""# Reference: RFC 6455

Result of the Autobahn suite (`autobahntestsuite` {SUITE}, {TOTAL} cases) against an echo. The echo uses the listener,
handshake, framing, send buffer and closing of the server. Only the handling of a message differs: it is sent back.

`make autobahn` runs the suite in a minute. The command fails if a case has another outcome than this page, better or
worse. The suite needs Python 2.7 with pip (`make autobahn PYTHON2=…`). The command installs the suite in a temporary
folder, and all connections stay on this machine.

`tests/rfc6455/test_rfc6455.py` is a short set of the same families. It runs in `make test`, against the echo and
against a whole server. `tests/docs` checks this page.

## Families

"""
_FAMILIES = ["| family | cases | strict passes | exceptions |", "|---|---|---|---|"]


_LIFTED = """
## Framing without limits

`make autobahn ARGS=--lifted` runs families 1 and 9 against an echo without the limits of the product. Messages have up
to 16 MiB, binary messages are sent back, and fragments are not counted.
"""
_EXCEPTIONS = ["| cases | number | outcome | close code | reason |", "|---|---|---|---|---|"]


def page() -> str:
    """Return the text of docs/reference/rfc6455.md."""
    rows = [_row(number, EXEMPTIONS) for number in FAMILIES]
    exempt = sum(sum(exemption.counts.values()) for exemption in EXEMPTIONS)
    rows.append(f"| **all** | {TOTAL} | {TOTAL - exempt} | {exempt} |")
    lines = [*_FAMILIES, *rows, "", "## Exceptions", "", *_EXCEPTIONS, *map(_reason, EXEMPTIONS), _LIFTED, *_FAMILIES]
    lines += [_row(number, LIFTED_EXEMPTIONS) for number in LIFTED]
    return _HEAD + "\n".join([*lines, "", *_EXCEPTIONS, *map(_reason, LIFTED_EXEMPTIONS)]) + "\n"


def _row(number: int, exemptions: tuple[Exemption, ...]) -> str:
    name, count = FAMILIES[number]
    exempt = sum(exemption.counts.get(number, 0) for exemption in exemptions)
    return f"| {number} {name} | {count} | {count - exempt} | {exempt} |"


def _reason(exemption: Exemption) -> str:
    outcome, count = exemption.outcome, sum(exemption.counts.values())
    return (
        f"| {_shown(exemption.cases)} | {count} | {outcome.behaviour} | {outcome.code or 'any'} | {exemption.reason} |"
    )


def _shown(cases: tuple[str, ...]) -> str:
    return ", ".join(f"{case}\\*" if case.endswith(".") else case for case in cases)
