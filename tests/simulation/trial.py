"""One trial: a cluster, its users and faults, as planned; its story, and the search for a shorter one."""

from __future__ import annotations

import gc
import logging
import random
import secrets
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from typing import Any
from unittest import mock

from msgspec import Struct

from greendot import ids
from greendot.node import hub, time_slices, timers
from greendot.node.session import Connection
from simulation.backend import AppBackend
from simulation.clients import Device
from simulation.engine import GRACE_S, LEASE_S, BusFaults
from simulation.intruders import intrude
from simulation.nodes import DEN, RIVAL, ROOM, TENANT, ClusterNode, World
from simulation.plans import NODE_VERBS, Plan, Step, is_of_device
from simulation.promises import Broken, Promises, bound_s
from simulation.record_promises import RecordPromises


class Result(Struct):
    """Outcome of a trial."""

    seed: int
    digest: str
    broken: Broken | None
    story: list[str]
    seconds: float


class Trial:
    """Run of one plan."""

    def __init__(self, plan: Plan, errors: list[str]) -> None:
        self.plan = plan
        self.errors = errors
        self.story: list[str] = []
        self.broken: Broken | None = None
        self._hash = blake2b(digest_size=16)
        self.world = World(plan.seed, plan.faults)
        self.users = [f"u{number}" for number in range(max(plan.owners) + 1)]
        self.promises = Promises(self.world, self.users, self._broke)
        self.devices = [
            Device(self.world, self.promises, f"u{owner}", f"d{number}", self.tell)
            for number, owner in enumerate(plan.owners)
        ]
        if plan.stranger:
            self.devices.append(Device(self.world, self.promises, "u0", "rival", self.tell, RIVAL))
        self.promises.access.devices = self.devices
        self.app = AppBackend(self.world, self.promises.access, self.tell)
        self.records = RecordPromises(self.world.db, self.app, self.promises.fail)
        self.slots: list[ClusterNode] = []
        self._outages = 0
        self._healed_at = 0.0  # end of the last fault
        written = self.promises.written

        def logged(contact: Any, frame: dict[str, Any]) -> None:
            self._hash.update(f"{self.world.universe.now!r} {contact.device} {frame!r}\n".encode())
            if frame["type"] in TOLD:
                self.tell(str(contact.node), f"writes to {contact.device}: {frame['type']} {_brief(frame)}")
            written(contact, frame)

        self.promises.written = logged  # type: ignore[method-assign]

    def tell(self, who: str, text: str) -> None:
        line = f"{self.world.universe.now - 1000:9.4f}  {who:9} {text}"
        self._hash.update(line.encode())
        self.story.append(line)

    def _broke(self, broken: Broken) -> None:
        if self.broken is None:
            self.broken = broken
            self.tell("CHECKER", str(broken))

    def run(self) -> Result:
        universe = self.world.universe
        for _ in range(self.plan.nodes):
            self.slots.append(self.world.start_node())
        universe.finish(self.slots[0].process, self._furnish(self.slots[0]))
        start = universe.now
        if self.plan.stranger:
            universe.after(0.5, self.devices[-1].come, 0)
        for step in self.plan.steps:
            universe.run_until(start + step.at)
            if self.broken is not None:
                break
            self._do(step)
        if self.broken is None:
            self._end()
        for failure in (*self.errors, *universe.failures):
            self._broke(Broken("no-error", failure))
        seconds = universe.now - start
        self.world.close()
        return Result(self.plan.seed, self._hash.hexdigest(), self.broken, self.story, seconds)

    async def _furnish(self, node: ClusterNode) -> None:
        store, bus = node.node.store, "hint" if self.plan.seed % 3 == 0 else "full"
        await store.put_room(TENANT, ROOM, open=True)
        await store.put_room(TENANT, DEN, open=False, bus=bus)
        await store.put_room(RIVAL, ROOM, open=True)
        for user in self.users[: max(1, len(self.users) - 1)]:
            await store.put_member(TENANT, DEN, user, "member")

    # --- steps ---

    def _do(self, step: Step) -> None:
        match step.verb:
            case "pause" | "cut" | "crash" | "restart" | "jump":
                getattr(self, f"_{step.verb}")(step.number, *step.args)
            case "flush" | "failover" | "snapshot" | "outage":
                getattr(self, f"_{step.verb}")(*step.args)
            case "notify" | "append" | "remove" | "admit" | "revoke" | "intrude":
                self._do_app(step, self.devices[step.number])
            case _:
                device = self.devices[step.number]
                calls = {
                    "come": device.come,
                    "drop": device.drop,
                    "close": device.close,
                    "bye": device.bye,
                    "silent": device.go_silent,
                    "type": device.type,
                    "status": device.set_status,
                    "stall": device.stall,
                    "say": lambda count, den: device.records.say(DEN if den else ROOM, count),
                    "mark": device.records.mark,
                }
                calls[step.verb](*step.args)  # type: ignore[operator]

    def _do_app(self, step: Step, device: Device) -> None:
        match step.verb:
            case "notify":
                self.app.notify(device.user, *step.args)
            case "append":
                self.app.append(DEN if step.args[0] else ROOM)
            case "remove" | "admit":
                self.app.set_member(device.user, step.verb == "admit")
            case "revoke":
                self.app.revoke(device.user)
            case "intrude":
                intrude(self.world, self.promises, device, *step.args)

    # --- faults ---

    def _lasts(self, seconds: float) -> None:
        """Note that a fault begins, and how long it lasts."""
        self._healed_at = max(self._healed_at, self.world.universe.now + seconds)

    def _flush(self) -> None:
        self.tell("engine", "loses all data")
        self.promises.flushes.append(self.world.universe.now)
        self.world.backend.flush()

    def _snapshot(self) -> None:
        self.world.backend.snapshot()

    def _failover(self, cuts: bool) -> None:
        """Continue with the data of the last snapshot. With `cuts`, the links of all nodes break for a moment."""
        self.tell("engine", "fails over to older data")
        self.promises.failovers.append(self.world.universe.now)
        self.promises.flushes.append(self.world.universe.now)
        self.world.backend.failover()
        for node in self.slots if cuts else ():
            if node.is_well:
                node.engine.cut()
                self.world.universe.after(0.2, self._link, node)

    def _link(self, node: ClusterNode) -> None:
        if node.is_up:
            node.engine.mend()

    def _outage(self, part: float, seconds: float) -> None:
        self.tell("store", f"fails {part:.0%} of the transactions for {seconds} s")
        self._lasts(seconds)
        self.world.store_faults.store = part
        self.promises.outages.append((self.world.universe.now, self.world.universe.now + seconds))
        self._outages += 1
        self.world.universe.after(seconds, self._end_outage, self._outages)

    def _end_outage(self, number: int) -> None:
        if number == self._outages:
            self.tell("store", "works again")
            self.world.store_faults.store = 0.0

    def _jump(self, number: int, seconds: float) -> None:
        node = self.slots[number]
        if node.is_well:
            self.tell(str(node), f"sets its clock by {seconds} s")
            node.clock.skew_s += seconds

    def _sicken(self, node: ClusterNode, text: str, seconds: float) -> bool:
        if not node.is_well:
            return False
        self._lasts(seconds)
        self.tell(str(node), text)
        self.promises.fell_sick(node)
        return True

    def _pause(self, number: int, seconds: float) -> None:
        node = self.slots[number]
        if self._sicken(node, f"is paused for {seconds} s", seconds):
            node.pause()
            self.world.universe.after(seconds, self._heal, node, node.resume, "continues")

    def _cut(self, number: int, seconds: float) -> None:
        node = self.slots[number]
        if self._sicken(node, f"is cut off from the engine for {seconds} s", seconds):
            node.cut()
            self.world.universe.after(seconds, self._heal, node, node.mend, "reaches the engine again")

    def _heal(self, node: ClusterNode, call: Any, text: str) -> None:
        if node.is_up:
            self.tell(str(node), text)
            call()
            self.promises.got_well(node)

    def _crash(self, number: int, back_s: float) -> None:
        node = self.slots[number]
        if self._sicken(node, f"is killed, and replaced after {back_s} s", back_s + LEASE_S):
            node.crash()
            self._reset_clients(node)
            self.world.universe.after(back_s, self._replace, number)

    def _reset_clients(self, node: ClusterNode) -> None:
        """Reset the sockets of a killed process, as its kernel does."""
        for device in self.devices:
            if device.contact is not None and device.contact.node is node:
                device.drop(0.0, 0.2 if device.is_wanted else None)

    def _restart(self, number: int, back_s: float) -> None:
        node = self.slots[number]
        if self._sicken(node, f"is stopped, and replaced after {back_s} s", back_s):
            node.stop()
            self.world.universe.after(back_s, self._replace, number)

    def _replace(self, number: int) -> None:
        node = ClusterNode(self.world)
        self.slots[number] = node
        self.world.nodes.append(node)
        node.process.do(lambda: node.process.create_task(self._start(node)))

    async def _start(self, node: ClusterNode) -> None:
        await node.node.start()
        node.is_up = True
        self.tell(str(node), "has started")

    # --- end ---

    def _end(self) -> None:
        """Let every fault heal and every grace end, then compare all screens and answers with the truth."""
        universe = self.world.universe
        for device in self.devices:
            device.typing_until = 0.0
        self.tell("trial", "no more faults")
        universe.run_until(max(universe.now, self._healed_at) + bound_s())
        reads: dict[str, tuple[list[dict[str, Any]], list[str]]] = {}
        for device in self.devices:
            if device.is_ready and not device.is_silent and not device.is_stranger:
                self._read(device, reads)
        universe.run_until(universe.now + 2.0)
        if self.broken is None:
            self.promises.check_end(self.devices, reads)
        if self.broken is None and not self.app.unanswered:
            self.records.check(self.devices)
        if self.broken is None:
            self._empty()

    def _empty(self) -> None:
        """Let all clients leave. When every grace is over, nothing of them may remain."""
        universe, wait_s = self.world.universe, LEAVE_S
        for device in self.devices:
            if not device.is_ready:
                wait_s = GRACE_S + LEAVE_S
                device.drop(0.0, None)
            device.bye()
            device.is_wanted = False
        universe.run_until(universe.now + wait_s)
        for node in self.world.nodes:
            if node.is_up:
                for name, size in node.remains().items():
                    if size:
                        self._broke(Broken("bounded", f"{node} keeps {size} {name}"))
        for name, size in self.world.backend.remains().items():
            if size:
                self._broke(Broken("bounded", f"the engine keeps {size} {name}"))

    def _read(self, device: Device, reads: dict[str, tuple[list[dict[str, Any]], list[str]]]) -> None:
        def got_presence(frame: dict[str, Any]) -> None:
            if frame["type"] == "error":
                return
            presence = frame["data"]["presence"]
            device.ask(lambda reply: got_room(presence, reply), type="room.present", room=ROOM)

        def got_room(presence: list[dict[str, Any]], frame: dict[str, Any]) -> None:
            if frame["type"] == "reply":
                reads[str(device)] = presence, frame["data"]["users"]

        device.ask(got_presence, type="presence.get", users=self.users)


LEAVE_S = 12.0  # for subscriptions without listeners to end
TOLD = {"presence.changed", "typing.started", "typing.stopped", "welcome", "error"}


def _brief(frame: dict[str, Any]) -> str:
    data = frame.get("data", {})
    if frame["type"] == "presence.changed":
        return f"{data['user']} {data['state']} version {data['version']}{' stale' if data.get('stale') else ''}"
    return str(data.get("user") or data.get("code") or frame.get("code") or "")


# --- a world without chance ---


class Errors(logging.Handler):
    """Errors that the nodes log: each is a fault of a node."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


def _ignored(unraisable: object) -> None:
    """Ignore an exception that nothing can handle."""


def _standing() -> float:
    return 0.0


@contextmanager
def fixed(seed: int, errors: logging.Handler) -> Iterator[None]:
    """Replace every source of chance and of real time in the nodes by the seed."""
    state = random.getstate()
    random.seed(seed)
    letters = random.Random(seed)
    standing = [mock.patch.object(module, "perf_counter", _standing) for module in (hub, timers, time_slices)]
    patches = [
        *standing,
        mock.patch.object(ids, "urandom", letters.randbytes),
        mock.patch.object(ids, "_session_tokens", []),  # else the first ids are left over from another seed
        mock.patch.object(secrets, "_sysrand", letters),  # of all functions of the module
        mock.patch.object(Connection, "__hash__", lambda connection: hash(connection.id)),
        mock.patch.object(sys, "unraisablehook", _ignored),  # of coroutines of dead nodes
    ]
    logger = logging.getLogger("greendot")
    before = logger.level, logger.propagate
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    logger.addHandler(errors)
    try:
        for patch in patches:
            patch.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of coroutines that a killed node has never begun
            yield
    finally:
        for patch in patches:
            patch.stop()
        random.setstate(state)
        logger.removeHandler(errors)
        logger.setLevel(before[0])
        logger.propagate = before[1]


@cache
def _freeze() -> None:
    """Let collections look only at what trials have made."""
    gc.freeze()


def run(plan: Plan) -> Result:
    """Run a plan. Cycles are collected afterwards: a collection in between would run code of dead nodes."""
    was_enabled = gc.isenabled()
    gc.disable()
    _freeze()
    try:
        errors = Errors()
        with fixed(plan.seed, errors):
            result = Trial(plan, errors.found).run()
            gc.collect()
            return result
    finally:
        if was_enabled:
            gc.enable()


def shrink(plan: Plan, invariant: str, tries: int = 300) -> Plan:
    """Return a shorter plan that breaks the same promise: fewer steps, and then fewer devices, nodes and bus faults."""

    def breaks(shorter: Plan) -> bool:
        found = run(shorter).broken
        return found is not None and found.invariant == invariant

    size = max(1, len(plan.steps) // 2)
    while tries > 0:
        for at in range(0, len(plan.steps), size):
            tries -= 1
            shorter = _with(plan, steps=plan.steps[:at] + plan.steps[at + size :])
            if breaks(shorter):
                plan = shorter
                break
        else:
            if size == 1:
                break
            size //= 2
    for changes in ({"faults": BusFaults(lag_s=plan.faults.lag_s)}, *_fewer(plan)):
        if breaks(shorter := _with(plan, **changes)):
            plan = shorter
    return plan


def _fewer(plan: Plan) -> Iterator[dict[str, Any]]:
    if plan.stranger:
        yield {"stranger": False}
    used = [step.number for step in plan.steps if is_of_device(step)]
    if used and max(used) + 1 < len(plan.owners):
        yield {"owners": plan.owners[: max(used) + 1]}
    for nodes in range(1, plan.nodes):
        if all(step.number < nodes for step in plan.steps if step.verb in NODE_VERBS):
            yield {"nodes": nodes}


def _with(plan: Plan, **changes: Any) -> Plan:
    given = {name: getattr(plan, name) for name in plan.__struct_fields__}
    return Plan(**(given | changes))


def tell(plan: Plan, result: Result) -> str:
    """Return the story of a failed trial."""
    lines = [
        f"seed {plan.seed}: {result.broken}",
        f"{plan.nodes} nodes; devices of users {[f'u{owner}' for owner in plan.owners]}; {plan.faults}",
        "plan:",
        *map(str, plan.steps),
        "story:",
        *result.story[-120:],
    ]
    return "\n".join(lines)
