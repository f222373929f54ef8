"""Scripts: one TOML file per behaviour, read and checked before anything runs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

Fields = frozenset[str]
ANY: Fields = frozenset({"*"})  # the fields of an event or frame to compare
SERVER_SIDE: Fields = frozenset({"type", "sender", "times"})

# Kind of step → command → fields. Each step has one kind.
STEPS: Mapping[str, Mapping[str, Fields]] = {
    "client": {
        "connect": frozenset({"device", "tokens", "backoff"}),
        "close": frozenset({"bye"}),
        "join": frozenset({"room", "after", "history"}),
        "leave": frozenset({"room"}),
        "send": frozenset({"room", "body"}),
        "type": frozenset({"room", "for_ms", "pace"}),
        "stop_typing": frozenset({"room"}),
        "watch": frozenset({"user"}),
        "now": frozenset(),
        "sync": frozenset(),
        "clock": frozenset({"shift_ms"}),
    },
    "peer": {
        "join": frozenset({"room"}),
        "send": frozenset({"room", "body", "times"}),
        "flood": frozenset({"room", "until"}),
        "typing": frozenset({"room"}),
        "stop_typing": frozenset({"room"}),
        "watch": frozenset({"user"}),
        "take_over": frozenset({"of"}),
        "expect": ANY,
        "none": frozenset({"event"}),
        "leave": frozenset(),
    },
    "proxy": {
        "cut": frozenset(),
        "down": frozenset(),
        "up": frozenset(),
        "stall": frozenset(),
        "resume": frozenset(),
        "delay": frozenset({"ms"}),
        "drop": SERVER_SIDE,
        "repeat": SERVER_SIDE,
        "change": SERVER_SIDE | {"put"},
        "pass": frozenset(),
        "refuse": frozenset({"status", "retry_after_s", "times"}),
        "inject": frozenset({"frame"}),
        "close": frozenset({"code", "reason"}),
    },
    "server": {"restart": frozenset(), "kill": frozenset(), "start": frozenset()},
    "app": {
        "notify": frozenset({"user", "kind", "body"}),
        "revoke": frozenset({"user"}),
        "ban": frozenset({"user"}),
        "disconnect": frozenset({"user"}),
    },
}
# Steps whose value is not a command.
VALUES: Mapping[str, Fields] = {
    "expect": ANY,  # the next event of this type
    "none": frozenset(),  # no further event of this type
    "sent": ANY,  # the next frame of this type that the client sent
    "total": frozenset({"is"}),  # number of frames of this type that the client has sent
    "attempts": frozenset(),  # number of connections that the client has opened
    "tokens": frozenset(),  # number of tokens that the client has requested
    "wait_ms": frozenset({"since"}),
    "await": frozenset(),  # answer of a command with `later`
    "vary": frozenset({"event", "field"}),  # number of different values among the events of all clients
}
EVERYWHERE: Fields = frozenset({"as", "mark"})
OF_KIND: Mapping[str, Fields] = {
    "client": frozenset({"later", "fails", "answer"}),
    "await": frozenset({"fails", "answer"}),
    "expect": frozenset({"skip", "not_before", "bodies", "flooded"}),
    "sent": frozenset({"skip", "not_before"}),
    "attempts": frozenset({"not_before"}),
}
FILE: Fields = frozenset({"about", "contract", "own_server", "ignore", "steps"})


class BadScript(ValueError):
    """Script that cannot run, with the file, the step and the remedy."""


class Step(NamedTuple):
    """One step: its kind (the first field), the value of the kind, and the other fields."""

    number: int
    kind: str
    value: Any
    fields: dict[str, Any]

    def __str__(self) -> str:
        more = "".join(f", {name} = {value!r}" for name, value in self.fields.items())
        return f"step {self.number} {{ {self.kind} = {self.value!r}{more} }}"


class Script(NamedTuple):
    """One behaviour. `contract` names the sections of the documentation that promise the behaviour."""

    name: str
    about: str
    contract: list[str]
    own_server: bool
    ignore: frozenset[str]
    steps: list[Step]

    @property
    def sets_clock(self) -> bool:
        """Return whether the script sets the clock of the runner's process, so that it must run alone there."""
        return any((step.kind, step.value) == ("client", "clock") for step in self.steps)


def load(path: Path) -> Script:
    """Read and check a script. Raise BadScript if it has a mistake."""
    try:
        given = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise BadScript(f"{path.name}: {error}; correct the TOML") from None
    if unknown := given.keys() - FILE:
        raise BadScript(f"{path.name}: unknown {_listed(unknown)}; use {_listed(FILE)}")
    if missing := {"about", "contract", "steps"} - given.keys():
        raise BadScript(f"{path.name}: {_listed(missing)} is missing; add it")
    steps = [_step(path.name, number, fields) for number, fields in enumerate(given["steps"], 1)]
    ignore = frozenset(given.get("ignore", ()))
    return Script(path.stem, given["about"], given["contract"], given.get("own_server", False), ignore, steps)


def load_all(folder: Path) -> list[Script]:
    return [load(path) for path in sorted(folder.glob("*.toml"))]


def _step(file: str, number: int, given: dict[str, Any]) -> Step:
    kind = next(iter(given), "")
    if kind not in STEPS and kind not in VALUES:
        every = _listed(STEPS.keys() | VALUES.keys())
        raise BadScript(f"{file}: step {number} begins with {kind!r}; begin with one of {every}")
    value = given[kind]
    fields = {name: one for name, one in given.items() if name != kind}
    if kind in STEPS and value not in STEPS[kind]:
        raise BadScript(f"{file}: step {number}: no {kind} command {value!r}; use {_listed(STEPS[kind].keys())}")
    known = STEPS[kind][value] if kind in STEPS else VALUES[kind]
    allowed = known | EVERYWHERE | OF_KIND.get(kind, frozenset())
    if known != ANY and (unknown := fields.keys() - allowed):
        raise BadScript(f"{file}: step {number}: unknown field {_listed(unknown)}; use {_listed(allowed)}")
    return Step(number, kind, value, fields)


def _listed(names: Fields | set[str] | Any) -> str:
    return ", ".join(sorted(names))
