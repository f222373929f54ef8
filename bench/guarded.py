"""Cost of authorisation and limits: deliveries with both on and off, in alternating rounds.

Two servers run at the same time. *Off*: an open room, tokens with a user only, no limits. *On*: a room with members,
tokens with audience, issuer, `jti`, `rooms` and `watch`, a visibility policy, and all limits. The limits are high: they
are counted but refuse nothing.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import jwt
from msgspec.structs import fields

from greendot.config import Limits
from measure import Bench, Plan, Rounds, say
from report import Row, rate, verdict
from serverd import Server, Trouble

KEPT = 0.90  # minimum share of the deliveries per second
FEW = 10  # listeners: few, so that the cost of a message is visible beside the cost of its deliveries
AUDIENCE, ISSUER = "chat", "https://app.example"
ENOUGH = 10_000_000  # per second: the maximum of a limit

Level = tuple[int, int]  # subscribers, messages in flight


@dataclass
class Guarded:
    """Deliveries per second of each round, by level, with checks off and on."""

    off: dict[Level, Rounds] = field(default_factory=dict)
    on: dict[Level, Rounds] = field(default_factory=dict)


def guarded(bench: Bench, plan: Plan) -> Guarded:
    found = Guarded()
    tokens = bench.folder / "tokens-with-claims"
    _mint(bench, tokens, plan.subscribers + 1)
    with ExitStack() as stack:
        off = stack.enter_context(bench.greendot())
        on = stack.enter_context(bench.greendot(**_settings()))
        _close_room(on, plan.subscribers + 1)
        contenders = [
            (found.off, off, bench.on(off)),
            (found.on, on, ("--port", on.port, "--pid", on.pid, "--tokens", tokens)),
        ]
        for number in range(plan.guard_rounds):
            # Alternating order, because a shared machine is noisy.
            for kept, _, flags in contenders if number % 2 else reversed(contenders):
                _round(bench, plan, kept, flags)
            say(f"guarded {number + 1}/{plan.guard_rounds}: {_last(found)}")
    return found


def _settings() -> dict[str, str]:
    rates = {
        f"GREENDOT_LIMITS_{limit.name}".upper(): str(ENOUGH)
        for limit in fields(Limits)
        if limit.name.endswith("_per_s") and limit.name != "sends_per_s"  # it delays and refuses nothing
    }
    return rates | {
        "GREENDOT_LIMITS_ENABLED": "true",
        "GREENDOT_LIMITS_COMMANDS_BURST": str(ENOUGH),
        "GREENDOT_LIMITS_USER_CONNECTIONS": "100",
        "GREENDOT_LIMITS_TENANT_CONNECTIONS": "100000",
        "GREENDOT_DOOR_CONNECTIONS_PER_IP": "100000",
        "GREENDOT_AUTH_AUDIENCE": AUDIENCE,
        "GREENDOT_AUTH_ISSUER": ISSUER,
        "GREENDOT_VISIBILITY_POLICY": "shared_rooms",
        "GREENDOT_ADMISSION_HELLOS_PER_S": "100000",  # no limit: hellos are not measured
    }


def _mint(bench: Bench, path: Path, users: int) -> None:
    now = int(time.time())
    claims = {"exp": now + 3600, "iat": now, "aud": AUDIENCE, "iss": ISSUER, "tenant": "default"}
    claims |= {"rooms": ["team-*", "project.*"], "watch": ["u*"]}
    lines = (
        jwt.encode(claims | {"sub": f"u{n}", "name": f"User {n}", "jti": f"t{n}"}, bench.access.auth_secret, "HS256")
        for n in range(users)
    )
    path.write_text("\n".join(lines) + "\n")


def _close_room(server: Server, users: int) -> None:
    """Restrict the room to its members, so that every signal is checked."""
    closed = server.request("PUT", "/v1/rooms/bench", {"open": False})
    answers = {server.request("PUT", f"/v1/rooms/bench/members/u{n}", {}) for n in range(users)}
    if closed != 200 or not answers <= {200, 201}:
        raise Trouble(
            f"The room could not be restricted (HTTP {closed}), or members not added (HTTP {sorted(answers)})."
        )


def _round(bench: Bench, plan: Plan, kept: dict[Level, Rounds], flags: tuple[object, ...]) -> None:
    for subscribers, in_flight in ((plan.subscribers, "1,16"), (FEW, "16")):
        timing = ("--warmup", plan.warmup_s, "--seconds", plan.guard_s, "--patience", plan.patience_s)
        words = ("broadcast", *flags, "--connections", subscribers, "--in-flight", in_flight, *timing)
        lines, trouble = bench.load_lines(*words)
        if trouble:
            raise Trouble(f"The broadcast failed: {trouble}.")
        for got in lines:
            level = subscribers, got["in_flight"]
            kept.setdefault(level, Rounds()).add(got["deliveries_per_s"], got["server_cpu"])


def _last(found: Guarded) -> str:
    told = (f"{on.values[-1]:,.0f}/{found.off[level].values[-1]:,.0f}" for level, on in found.on.items())
    return f"deliveries/s on/off {', '.join(told)}"


def rows(found: Guarded) -> list[Row]:
    made = []
    for level, off in found.off.items():
        on, (subscribers, in_flight) = found.on[level], level
        what = f"broadcast to {subscribers:,} with {in_flight} in flight"
        made.append(rate(f"{what}, authorisation and limits off", off, "deliveries/s"))
        made.append(rate(f"{what}, on", on, "deliveries/s"))
        made += _ratios(f"{what}, on ÷ off", on, off, None if subscribers == FEW else KEPT)
    return made


def _ratios(what: str, on: Rounds, off: Rounds, target: float | None) -> list[Row]:
    ratios = [a / b for a, b in zip(on.values, off.values, strict=True)]
    # By CPU time, the ratio does not depend on other programs of the machine.
    by_cpu = [
        (a / used) / (b / spent)
        for a, used, b, spent in zip(on.values, on.server_cpu, off.values, off.server_cpu, strict=True)
    ]
    return [
        _ratio(what, ratios, target),
        _ratio(f"{what}, by the server's CPU time", by_cpu, None),
    ]


def _ratio(what: str, ratios: list[float], target: float | None) -> Row:
    middle = median(ratios)
    beside = {} if target is None else {"target": f"≥ {target:.2f}", "verdict": verdict(middle >= target)}
    return Row(what, f"{middle:.2f}", f"{min(ratios):.2f}–{max(ratios):.2f}", **beside)
