"""Engine that several nodes share over unreliable links: the memory engine with leases, burials, losses and a bus.

It follows `engine.port`. The commands of one node arrive in order, some time after the call, and their replies come
some time later. A link can be cut: commands and replies that are under way are then lost, and so are messages.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeVar

from msgspec import Struct

from greendot.engine.memory import MemoryEngine
from greendot.engine.messages import Message, Part, Topic, Typing
from greendot.engine.port import Host, RecordsState, Transition
from greendot.errors import EngineUnavailable
from greendot.ids import Key, new_incarnation
from greendot.presence.model import ManualStatus, NodeLife, Snapshot
from simulation.processes import TICK_S, Clock, Process, Universe

T = TypeVar("T")
LEASE_S, RENEW_S, SAMPLE_S, GRACE_S = 15.0, 5.0, 1.0, 30.0
RECONNECT_S = 0.3


class BusFaults(Struct):
    """Probabilities of what happens to a message on the bus, and the average delay of everything."""

    drop: float = 0.0
    twice: float = 0.0
    late: float = 0.0  # so late that later messages overtake it
    lag_s: float = 0.005


class Backend:
    """Data and leases of all nodes, as Redis has them."""

    def __init__(self, universe: Universe, chance: random.Random, faults: BusFaults) -> None:
        self.universe = universe
        self.clock = Clock(universe)
        self.chance = chance
        self.faults = faults
        self.engines: list[ClusterEngine] = []
        self.data: dict[str, dict[Any, Any]] = {name: {} for name in DATA}
        self.leases: dict[str, tuple[int, int, str]] = {}  # incarnation → counter, last renewal, restored epoch
        self.epoch = "epoch-1"
        self._epochs = count(2)
        self._snapshot: Any = ({}, {})

    def lag(self) -> float:
        return self.chance.expovariate(1 / self.faults.lag_s)

    def flush(self) -> None:
        """Lose all data, as FLUSHALL does. Subscriptions remain."""
        for part in self.data.values():
            part.clear()
        self.leases.clear()
        self.epoch = f"epoch-{next(self._epochs)}"

    def snapshot(self) -> None:
        """Copy all data, as a replica or a snapshot on disk has them."""
        self._snapshot = copy.deepcopy((self.data, self.leases))

    def failover(self) -> None:
        """Continue with the data of the last snapshot; without one, with no data."""
        data, leases = copy.deepcopy(self._snapshot)
        self.flush()
        for name, part in data.items():
            self.data[name].update(part)
        self.leases.update({node: (counter, renewed, "") for node, (counter, renewed, _) in leases.items()})

    def remains(self) -> dict[str, int]:
        """Return the sizes of everything that the engine keeps for clients."""
        now, nodes = self.engines[0].now_ms(), self.data["_nodes"]
        occupied = [room for room, occupants in self.data["_occupants"].items() if occupants.users(now, nodes)]
        return {"users": len(self.data["_users"]), "rooms with occupants": len(occupied)}

    def distribute(self, topic: Topic, message: Message) -> None:
        """Send a message to the nodes that receive its topic."""
        chance, faults = self.chance, self.faults
        for engine in self.engines:
            if not engine.hears(topic) or not engine.is_reached or chance.random() < faults.drop:
                continue
            for _ in range(2 if chance.random() < faults.twice else 1):
                # Rooms rely on the order of the bus; presence and typing do not.
                if chance.random() < faults.late and (topic.kind == "watch" or isinstance(message, Typing)):
                    engine.push(topic, message, self.universe.now + chance.uniform(0.05, 1.0))
                else:
                    engine.pushed_at = max(engine.pushed_at + TICK_S, self.universe.now + self.lag())
                    engine.push(topic, message, engine.pushed_at)


DATA = ("_nodes", "_users", "_tenants", "_seen", "_typing", "_occupants")


class ClusterEngine(MemoryEngine):
    """One node's engine: its link to the backend, its lease, and its view of the other nodes."""

    def __init__(self, backend: Backend, process: Process) -> None:
        super().__init__(backend.clock, grace_ms=round(GRACE_S * 1000))
        for name, data in backend.data.items():
            setattr(self, name, data)
        self.backend = backend
        self.process = process
        self.is_linked = True
        self.link = 0  # number of the connection to the backend
        self.pushed_at = 0.0
        self._sent_at = self._replied_at = 0.0
        self._is_inside = False  # the backend executes a command
        self._turns: list[Transition] = []
        self._closed = False
        self._waiting: dict[int, asyncio.Future[Any]] = {}  # commands without a reply
        # The node's view of the cluster.
        self._epoch = ""
        self._renewed_at = self._looked_at = float("-inf")
        self._observed: dict[str, tuple[int, float]] = {}
        self._report = ""  # epoch whose sessions this node has restored
        self._alive: set[str] = set()  # live nodes, as of the last look
        self._ended: dict[str, int] = {}  # dead nodes whose sessions have ended, and when
        self._swept: dict[str, tuple[int, str]] = {}  # the same, with the epoch in which they were removed
        self._heard_at = float("-inf")
        self._lost_at: float | None = None  # monotonic time at which an open loss was found
        self._restored: list[asyncio.Future[None]] = []
        self._is_broken = False  # `Host.lost` was called, and `Host.found` was not
        self._round = 0

    # --- link ---

    @property
    def is_reached(self) -> bool:
        """Return whether messages reach the node: after a cut, only when it has connected again."""
        return self.is_linked and not self._is_broken

    def cut(self) -> None:
        """Cut the link: everything under way is lost."""
        self.is_linked = False
        self.link += 1
        self.process.do(self._on_cut)

    def mend(self) -> None:
        self.is_linked = True

    def _on_cut(self) -> None:
        waiting, self._waiting = [*self._waiting.values()], {}
        for future in waiting:
            if not future.done():
                future.set_exception(EngineUnavailable("the link is cut"))
        self._break()

    def _break(self) -> None:
        if not self._is_broken and self._host is not None:
            self._is_broken = True
            self._observed.clear()
            self._host.lost(Linked(self))

    async def _call(self, command: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Execute a command in the backend, and wait for its reply."""
        if self._closed or not self.is_linked or self._is_broken:
            raise EngineUnavailable("the engine is away")
        return await self._ask(command)

    async def _ask(self, command: Callable[[], Coroutine[Any, Any, T]]) -> T:
        number, future = self._wait()
        self._send(partial(self._execute, command, future, self.link))
        try:
            reply, epoch = await future
        finally:
            self._waiting.pop(number, None)
        self._check_epoch(epoch)
        return reply  # type: ignore[no-any-return]

    def _wait(self) -> tuple[int, asyncio.Future[Any]]:
        """Return a number and a future that fails when the link is cut."""
        self._round += 1
        future = self._waiting[self._round] = self.process.create_future()
        return self._round, future

    def _send(self, arrived: Callable[[], None]) -> None:
        universe = self.backend.universe
        self._sent_at = max(self._sent_at + TICK_S, universe.now + self.backend.lag())
        universe.at(self._sent_at, arrived)

    def _execute(self, command: Callable[[], Coroutine[Any, Any, Any]], future: asyncio.Future[Any], link: int) -> None:
        if link != self.link or not self.is_linked:
            return
        self._turns = []
        result, error = None, None
        self._is_inside = True
        try:
            command().send(None)
        except StopIteration as end:
            result = end.value
        except EngineUnavailable as failed:
            error = failed
        else:
            raise AssertionError("a command of the memory engine waits")
        finally:
            self._is_inside = False
        self._replied_at = max(self._replied_at + TICK_S, self.backend.universe.now + self.backend.lag())
        reply = (result, self.backend.epoch)
        self.backend.universe.at(self._replied_at, self._reply, future, link, reply, error, self._turns)

    def _reply(
        self,
        future: asyncio.Future[Any],
        link: int,
        reply: Any,
        error: EngineUnavailable | None,
        turns: Sequence[Transition],
    ) -> None:
        if link == self.link and self.is_linked:
            self.process.do(self._replied, future, reply, error, turns)

    def _replied(
        self,
        future: asyncio.Future[Any],
        reply: Any,
        error: EngineUnavailable | None,
        turns: Sequence[Transition],
    ) -> None:
        if future.done():
            return
        for turn in turns:
            if self.turned is not None:
                self.turned(turn)
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(reply)

    # --- bus ---

    def hears(self, topic: Topic) -> bool:
        if topic.kind == "node" and topic.name != "all":
            return topic.name == self._incarnation or topic in self._topics
        if topic.kind == "user":
            record = self._users.get((topic.tenant, topic.name))
            return record is not None and any(e.incarnation == self._incarnation for e in record.sessions.values())
        return topic in self._topics

    def push(self, topic: Topic, message: Message, when: float) -> None:
        self.backend.universe.at(when, self._pushed, topic, message, self.link)

    def _pushed(self, topic: Topic, message: Message, link: int) -> None:
        if link == self.link and self.is_linked and not self._is_broken:
            self.process.do(self._arrived, topic, message)

    def _arrived(self, topic: Topic, message: Message) -> None:
        if self._host is not None and (topic.kind in ("user", "node") or topic in self._topics):
            self._host.receive(topic, message)

    def publish(self, topic: Topic, message: Message) -> None:
        if self._is_inside:
            self.backend.distribute(topic, message)
        elif self.is_linked and not self._closed:
            link = self.link
            self._send(lambda: self.backend.distribute(topic, message) if link == self.link else None)

    async def reach(self, node: str, message: Message) -> bool:
        topic = Topic("node", "", node)

        async def send() -> bool:
            self.backend.distribute(topic, message)
            return any(engine.hears(topic) for engine in self.backend.engines)

        return await self._call(send)

    def heard_at(self) -> float:
        return self._heard_at

    async def subscribe(self, topics: Iterable[Topic]) -> None:
        chosen = [*topics]
        await self._call(lambda: MemoryEngine.subscribe(self, chosen))

    async def unsubscribe(self, topics: Iterable[Topic]) -> None:
        await MemoryEngine.unsubscribe(self, [*topics])

    # --- typing, without a reply ---

    def typing_start(self, tenant: str, room: str, user: str, name: str | None) -> None:
        self._quietly(lambda: MemoryEngine.typing_start(self, tenant, room, user, name))

    def typing_stop(self, tenant: str, room: str, user: str) -> None:
        self._quietly(lambda: MemoryEngine.typing_stop(self, tenant, room, user))

    def _quietly(self, command: Callable[[], None]) -> None:
        link = self.link

        def arrived() -> None:
            if link == self.link and self.is_linked:
                self._is_inside = True
                command()
                self._is_inside = False

        if self.is_linked and not self._closed:
            self._send(arrived)

    def _prune_typing(self, now: int) -> None:
        for room in [room for room, typists in self._typing.items() if not typists.prune(now)]:
            del self._typing[room]  # in place: the nodes share it

    def _publish(self, kind: Any, key: Key, on: bool) -> None:
        self._turns.append(Transition(kind, *key, on))

    # --- life ---

    async def start(self, host: Host) -> str:
        self._host = host
        self._incarnation = new_incarnation()
        self.backend.engines.append(self)
        await self._ask(partial(self._register, self._incarnation))
        self._epoch = self._report = self.backend.epoch
        self._looked_at = self.process.time()
        self.process.create_task(self._watch())
        return self._incarnation

    async def _register(self, incarnation: str) -> None:
        self._nodes.setdefault(incarnation, NodeLife())
        self._alive.update(node for node, life in self._nodes.items() if life.ends is None)
        self._renew(incarnation)

    def _renew(self, incarnation: str) -> None:
        counter, _, _ = self.backend.leases.get(incarnation, (0, 0, ""))
        self.backend.leases[incarnation] = (counter + 1, self.now_ms(), self._report)

    async def close(self) -> None:
        try:
            await self._call(partial(self._bury, self._incarnation, None))
        except EngineUnavailable:
            pass
        self._closed, self._host = True, None
        if self in self.backend.engines:
            self.backend.engines.remove(self)

    def crash(self) -> None:
        """Vanish without notice. The lease runs out."""
        self._closed, self._host = True, None
        self.link += 1
        self.backend.engines.remove(self)

    async def _bury(self, node: str, renewed: int | None) -> None:
        if self._nodes.setdefault(node, NodeLife()).ends is None:
            now = self.now_ms()
            self._nodes[node] = NodeLife(renewed or now, now + self._grace_ms)

    async def _watch(self) -> None:
        """Once in a sample, renew the lease and look at the other nodes. After an outage, connect again."""
        while not self._closed:
            await asyncio.sleep(SAMPLE_S)
            if self._is_broken:
                await self._reconnect()
                continue
            try:
                await self._look()
            except EngineUnavailable:
                pass  # a cut fails all commands under way, so no command waits for ever

    async def _reconnect(self) -> None:
        await asyncio.sleep(RECONNECT_S)
        if not self.is_linked or self._closed:
            return
        try:
            life, epoch = await self._ask(self._return)
        except EngineUnavailable:
            return
        if self._host is None:  # the node has closed meanwhile
            return
        self._is_broken = False
        self._looked_at = self.process.time()
        if not life:
            try:
                await self._be_reborn()
            except EngineUnavailable:
                return  # cut off again
        self._host.found(Part(), intact=epoch == self._epoch)
        if epoch != self._epoch:
            self._lost(epoch)

    async def _return(self) -> tuple[bool, str]:
        """Register again, unless the node is dead. Return whether it lives, and the epoch."""
        life = self._nodes.setdefault(self._incarnation, NodeLife())
        if life.ends is None:
            self._renew(self._incarnation)
        return life.ends is None, self.backend.epoch

    async def _be_reborn(self) -> None:
        incarnation = new_incarnation()
        await self._ask(partial(self._register, incarnation))
        self._incarnation = incarnation  # the host uses it from now on; after a failure, the next look tries again
        if self._host is not None:
            self._host.reborn(self._incarnation)

    async def _look(self) -> None:
        now = self.process.time()
        if now - self._looked_at > 2.5 * SAMPLE_S:
            self._observed.clear()  # an own pause must not look like the death of others
        renew = now - self._renewed_at >= RENEW_S - SAMPLE_S / 2

        async def look() -> tuple[bool, dict[str, Any], dict[str, NodeLife]]:
            life = self._nodes.get(self._incarnation)
            if renew and life is not None and life.ends is None:
                self._renew(self._incarnation)
            # A missing entry was lost with the data, and is registered again.
            return life is None or life.ends is None, dict(self.backend.leases), dict(self._nodes)

        lives, leases, nodes = await self._call(look)
        if self._host is None:
            return
        self._looked_at = self._heard_at = now
        live = {node for node, life in nodes.items() if life.ends is None}
        # A missing node was lost with the data: it registers again, or becomes overdue.
        self._alive = live | {node for node in self._alive if node not in nodes}
        if not lives:
            await self._be_reborn()
            return
        if renew:
            self._renewed_at = now
        await self._review(leases, nodes, now)
        self._review_loss(leases)

    async def _review(self, leases: dict[str, Any], nodes: dict[str, NodeLife], now: float) -> None:
        """Bury nodes whose lease is over, and end the sessions of dead nodes."""
        for node in sorted(self._alive):
            counter, renewed, _ = leases.get(node, (0, 0, ""))
            if self._observed.get(node, (-1, 0.0))[0] != counter:
                self._observed[node] = counter, now
            elif node != self._incarnation and now - self._observed[node][1] >= LEASE_S - 0.05:
                await self._call(partial(self._bury, node, renewed))
                self._alive.discard(node)
        for node, life in nodes.items():
            if life.ends is None or life.ends > self.now_ms():
                continue
            if self._swept.get(node) != (life.ends, self._epoch):
                self._swept[node] = life.ends, self._epoch
                await self._call(lambda: MemoryEngine.sweep(self))
            # After a failover to older data, a node may have to die again.
            if self._ended.get(node) != life.ends and self._host is not None:
                self._ended[node] = life.ends
                self._host.died(node)

    # --- losses ---

    def _check_epoch(self, epoch: str) -> None:
        if self._epoch and epoch != self._epoch and not self._is_broken and self._host is not None:
            self._lost(epoch)
            self.process.create_task(self._register_again())

    async def _register_again(self) -> None:
        try:
            await self._ask(self._return)
        except EngineUnavailable:
            return
        if self._host is not None:
            self._host.found(Part(), intact=False)

    def _lost(self, epoch: str) -> None:
        self._epoch, self._lost_at = epoch, self.process.time()

    def _review_loss(self, leases: dict[str, Any]) -> None:
        """Close an open loss when all live nodes have restored their sessions."""
        if self._lost_at is None:
            return
        age_s = self.process.time() - self._lost_at
        done = all(leases.get(node, (0, 0, ""))[2] == self._epoch for node in self._alive)
        own = leases.get(self._incarnation, (0, 0, ""))[2] == self._epoch
        if own and age_s >= 2 * SAMPLE_S and (done or age_s >= LEASE_S):
            self._lost_at = None
            restored, self._restored = self._restored, []
            for future in restored:
                if not future.done():
                    future.set_result(None)

    def is_restoring(self, tenant: str, name: str) -> bool:
        return self._lost_at is not None or self._is_broken

    async def is_any_restoring(self) -> bool:
        return self._lost_at is not None

    def records_state(self, part: Part) -> RecordsState:
        return {0: self._epoch}

    async def restored(self, part: Part, since: RecordsState) -> None:
        async def report() -> None:
            if since == {0: self.backend.epoch}:
                self._report = self.backend.epoch
                if self._incarnation in self.backend.leases:
                    self._renew(self._incarnation)

        await self._call(report)
        if self._lost_at is not None:
            number, future = self._wait()
            self._restored.append(future)
            try:
                await future
            finally:
                self._waiting.pop(number, None)

    async def read(self, tenant: str, users: Sequence[str]) -> list[Snapshot]:
        if self._is_inside:
            return await MemoryEngine.read(self, tenant, users)
        found = await self._call(lambda: MemoryEngine.read(self, tenant, users))
        if self.is_restoring(tenant, ""):
            return [snapshot._replace(stale=True) for snapshot in found]
        return found

    async def set_status(self, tenant: str, user: str, manual: ManualStatus) -> Snapshot:
        if self._is_inside:
            return await MemoryEngine.set_status(self, tenant, user, manual)
        snapshot = await self._call(lambda: MemoryEngine.set_status(self, tenant, user, manual))
        return snapshot._replace(stale=self.is_restoring(tenant, user))  # as the Redis engine does

    def live_nodes(self) -> Collection[str]:
        return self._alive


class Linked(Part):
    """Everything behind one node's link."""

    def __init__(self, engine: ClusterEngine) -> None:
        self._engine = engine

    def away(self) -> Part | None:
        return self if self._engine._is_broken else None


def _remote(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    verb = getattr(MemoryEngine, name)

    async def call(self: ClusterEngine, *args: Any, **named: Any) -> Any:
        if self._is_inside:
            return await verb(self, *args, **named)
        return await self._call(partial(verb, self, *args, **named))

    call.__name__ = name
    return call


REMOTE = (
    "touch restore adopt linger leave online sessions typers enter exit present present_page "
    "sessions_in_room room_nodes sweep audit nodes"
)
for _name in REMOTE.split():
    setattr(ClusterEngine, _name, _remote(_name))
