"""Plans: all that a trial does is drawn from its seed before it begins. So steps can be left out."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from msgspec import Struct

from simulation.engine import BusFaults


class Step(NamedTuple):
    """One step of a plan: something that a device or the app does, or a fault."""

    at: float
    verb: str
    number: int  # of the device or node
    args: tuple[Any, ...]

    def __str__(self) -> str:
        given = ", ".join(map(str, self.args))
        return f"{self.at:8.3f}  {self.verb} {self.number}{f' ({given})' if given else ''}"


class Plan(Struct, frozen=True):
    """All that is drawn from a seed."""

    seed: int
    nodes: int
    owners: tuple[int, ...]  # of each device: its user
    faults: BusFaults
    steps: tuple[Step, ...]
    seconds: float
    stranger: bool = False  # a client of another tenant is there too


DEVICE_VERBS = (
    ("drop",) * 5 + ("come",) * 3 + ("close", "bye", "silent") + ("type",) * 3 + ("status",) * 2 + ("stall",)
    + ("say",) * 5 + ("mark",) * 2
)  # fmt: skip
NODE_VERBS = ("pause", "cut", "crash", "restart", "jump")
HEALING = ("pause", "cut", "flush", "failover")
ENGINE_VERBS = ("flush", "snapshot", "failover")
APP_VERBS = ("notify",) * 4 + ("append",) * 2 + ("remove", "admit", "revoke", "intrude")
STORE_VERBS = ("outage",)
ATTACKS = ("forge", "steal", "enter", "refresh", "garbage", "flood", "early", "half", "twice")


def draw(seed: int) -> Plan:
    """Return the plan of a seed."""
    chance = random.Random(seed)
    nodes = chance.choice((1, 2, 2, 3, 3, 4))
    users = chance.randint(2, 4)
    owners = (*range(users), *(chance.randrange(users) for _ in range(chance.randint(0, 2))))
    faults = BusFaults(
        twice=chance.choice((0.0, 0.1)), late=chance.choice((0.0, 0.1)), lag_s=chance.choice((0.001, 0.005, 0.02))
    )
    steps, now = list[Step](), 0.5
    for device in range(len(owners)):
        if chance.random() < 0.85:
            steps.append(Step(now, "come", device, (chance.randrange(4),)))
            now += chance.expovariate(4.0)
    for _ in range(chance.randint(8, 28)):
        now += chance.expovariate(1 / chance.choice((0.05, 1.0, 6.0, 15.0)))
        some = _draw_step(chance, round(now, 3), nodes, len(owners))
        steps += some
        if some[-1].verb in HEALING and chance.random() < 0.4:  # something happens while the nodes recover
            seconds = some[-1].args[0] if some[-1].verb in ("pause", "cut") else 0.0
            at = round(some[-1].at + seconds + chance.uniform(0.0, 1.5), 3)
            verb = chance.choice(("bye", "drop", "drop", "close", "status", "come"))
            steps.append(_draw_device_step(chance, at, chance.randrange(len(owners)), verb))
    steps.sort(key=lambda step: step.at)
    return Plan(seed, nodes, owners, faults, tuple(steps), max(now, steps[-1].at), stranger=chance.random() < 0.2)


def _draw_step(chance: random.Random, now: float, nodes: int, devices: int) -> list[Step]:
    kind = chance.random()
    if kind < 0.62:
        return [_draw_device_step(chance, now, chance.randrange(devices))]
    if kind < 0.78:
        return [_draw_app_step(chance, now, chance.randrange(devices))]
    if kind < 0.95:
        return [_draw_node_step(chance, now, chance.randrange(nodes))]
    if kind < 0.97:
        return [Step(now, "outage", 0, (chance.choice((0.3, 1.0)), chance.choice((0.5, 5.0, 20.0))))]
    if chance.random() < 0.5:
        return [Step(now, "flush", 0, ())]
    lag_s = chance.choice((0.05, 0.5, 5.0, 40.0))
    return [Step(now, "snapshot", 0, ()), Step(now + lag_s, "failover", 0, (chance.random() < 0.5,))]


def _draw_device_step(chance: random.Random, now: float, device: int, verb: str | None = None) -> Step:
    verb = verb or chance.choice(DEVICE_VERBS)
    match verb:
        case "drop":
            back = chance.choice((None, 0.0, 0.05, 1.0, 10.0, 25.0, 28.5))
            return Step(now, verb, device, (chance.choice((0.0, 0.0, 0.5, 4.0, None)), back))
        case "type":
            return Step(now, verb, device, (chance.choice((1.0, 7.0)), chance.random() < 0.5))
        case "stall":
            return Step(now, verb, device, (chance.choice((0.5, 5.0)),))
        case "come":
            return Step(now, verb, device, (chance.randrange(4),))
        case "status":
            return Step(now, verb, device, (chance.choice(("auto", "busy", "invisible", "invisible")),))
        case "say":
            return Step(now, verb, device, (chance.choice((1, 1, 3, 12)), chance.random() < 0.5))
        case "mark":
            return Step(now, verb, device, (chance.choice(("seen", "read", "archive", "ack")), chance.random()))
    return Step(now, verb, device, ())


def _draw_app_step(chance: random.Random, now: float, device: int) -> Step:
    verb = chance.choice(APP_VERBS)
    match verb:
        case "notify":
            return Step(
                now, verb, device, (chance.choice(("note", "note", "secret", "alarm")), chance.choice((1, 1, 4)))
            )
        case "append":
            return Step(now, verb, device, (chance.random() < 0.5,))
        case "intrude":
            return Step(now, verb, device, (chance.choice(ATTACKS),))
    return Step(now, verb, device, ())


def _draw_node_step(chance: random.Random, now: float, node: int) -> Step:
    verb = chance.choice(NODE_VERBS)
    match verb:
        case "pause" | "cut":
            return Step(now, verb, node, (chance.choice((0.4, 3.0, 12.0, 22.0, 60.0)),))
        case "jump":
            return Step(now, verb, node, (chance.choice((-3600.0, -20.0, -1.0, 1.0, 20.0, 3600.0)),))
    return Step(now, verb, node, (chance.choice((0.5, 5.0, 40.0)),))


def is_of_device(step: Step) -> bool:
    """Return whether the number of a step is that of a device."""
    return step.verb not in (*NODE_VERBS, *ENGINE_VERBS, *STORE_VERBS)
