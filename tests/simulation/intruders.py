"""Attacks of a hostile client of the same tenant: it impersonates, enters, floods and breaks the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from greendot.testing.wire import TEXT, make_frame
from simulation.access import FORBIDDEN, Intruder
from simulation.network import Wire
from simulation.nodes import DEN, ROOM, ClusterNode, World

if TYPE_CHECKING:
    from simulation.clients import Device
    from simulation.promises import Promises

STAYS_S = 20.0
FLOOD = 150  # commands of a flood
NOISE = (
    b"\x82\x83\x00\x00\x00\x00abc",  # binary
    b"\xf1\x80\x00\x00\x00\x00",  # reserved bits
    b"\x81\x03abc",  # not masked
    b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",  # a length beyond every limit
    b"\x00\x81\x00\x00\x00\x00a",  # a continuation of nothing
    b"\x89\xfe\x00\x80\x00\x00\x00\x00" + b"p" * 128,  # a ping that is too long
    make_frame(TEXT, b"\xff\xfe", mask=True),
    make_frame(TEXT, b'{"type": ', mask=True),
    make_frame(TEXT, b"[" * 400, mask=True),
    make_frame(TEXT, b'{"type": "watch", "users": 1e999}', mask=True),
    make_frame(TEXT, b'{"type": "heartbeat", "id": "' + b"x" * 4000 + b'"}', mask=True),
)


class _Attack:
    def __init__(self, world: World, promises: Promises, victim: Device, node: ClusterNode) -> None:
        self.world = world
        self.victim = victim
        self.node = node
        self.intruder = Intruder(promises.fail)
        self.wire = Wire(world.universe, world.backend.lag, self._written, lambda frame: None)
        node.accept(self.wire)

    def _written(self, frame: dict[str, Any] | None) -> None:
        if frame is not None:
            self.intruder.written(frame)

    def hello(self, **more: Any) -> None:
        self.wire.say(type="hello", token=self.world.token(self.node, "mallory"), device="lab", **more)

    def denied(self, number: int, **command: Any) -> None:
        self.intruder.denied.add(number)
        self.wire.say(**command, id=number)

    def forge(self) -> None:
        header, claims, signature = self.world.token(self.node, self.victim.user).split(".")
        forged = ".".join((header, claims, signature[::-1]))
        self.wire.say(type="hello", token=forged, device=self.victim.name, id=1)
        self.intruder.may_enter = False

    def steal(self) -> None:
        resume = {"session": self.victim.session or "none", "rooms": {DEN: 0, ROOM: 10**9}, "inbox": 0}
        self.hello(resume=resume)
        self.denied(1, type="room.history", room=DEN)

    def enter(self) -> None:
        self.hello()
        for number, command in enumerate(FORBIDDEN):
            self.denied(number, **command)

    def refresh(self) -> None:
        self.hello()
        self.denied(1, type="token.refresh", token=self.world.token(self.node, self.victim.user))
        self.denied(2, type="room.join", room=DEN, after=0)

    def garbage(self) -> None:
        self.hello()
        for noise in NOISE[:: 1 if self.world.random.random() < 0.5 else -1]:
            self.wire.say_raw(noise)

    def flood(self) -> None:
        self.hello()
        self.wire.stall(STAYS_S)
        for number in range(FLOOD):
            self.wire.say(type="presence.get", users=[self.victim.user, f"ghost{number}"], id=number)

    def early(self) -> None:
        self.denied(1, type="presence.get", users=[self.victim.user])
        self.denied(2, type="room.join", room=ROOM)

    def half(self) -> None:
        self.hello()
        self.wire.say_raw(make_frame(TEXT, b'{"type": "heartbeat"}', mask=True)[:9])

    def twice(self) -> None:
        self.hello()
        self.wire.say(type="hello", token=self.world.token(self.node, self.victim.user), device="lab", id=2)
        self.denied(3, type="inbox.read", through=0.5)


ATTACKS: dict[str, Callable[[_Attack], None]] = {
    name: getattr(_Attack, name)
    for name in ("forge", "steal", "enter", "refresh", "garbage", "flood", "early", "half", "twice")
}


def intrude(world: World, promises: Promises, victim: Device, kind: str) -> None:
    """Begin an attack. Its socket is cut after a while."""
    up = [node for node in world.nodes if node.is_up]
    if not up or victim.user in world.revoking:
        return
    attack = _Attack(world, promises, victim, up[world.random.randrange(len(up))])
    ATTACKS[kind](attack)
    world.universe.after(STAYS_S, attack.wire.cut, 0.0)
