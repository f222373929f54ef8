"""Changes of users and rooms that are held after a loss in the engine.

A held user is shown as before the loss, until all nodes have restored the user's sessions. The same holds for the
occupants of a room. A user who leaves or sets a status meanwhile must not wait for that. So a node that receives such a
change asks all live nodes for their sessions of this user, and shows the change if these sessions confirm it. If a node
does not answer, the question is repeated: the node may be slow, or dead soon. Otherwise the change is left to the read
at the end of the hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from greendot.engine.messages import ClusterAnswer, SessionsQuestion, Topic
from greendot.engine.port import Engine
from greendot.node.bus import BusTable
from greendot.node.cluster_rpc import ClusterRpc
from greendot.node.context import NodeContext
from greendot.node.session import Session
from greendot.presence.held_model import Seen, is_confirmed, is_possible
from greendot.presence.status import StatusService
from greendot.protocol.events import State
from greendot.telemetry import log_events
from greendot.telemetry.log import log

WITHIN_S = 1.0  # time for all nodes to answer
AT_ONCE = 500  # users in one question
HIDDEN_S, HIDDEN_ATTEMPTS = 0.2, 5  # pause before a question about a user who is invisible for a node, and questions
ATTEMPTS = 20  # questions about one change; together they take longer than the usual lease of a node that hangs

Place = tuple[str, str, str]  # tenant, user, room; without a room, all sessions of the user count


class _HeldChange(NamedTuple):
    state: State
    show: Callable[[], None]
    attempts: int = 1


class HeldChanges:
    """Confirmation of held changes on one node, and answers to the questions of other nodes."""

    def __init__(self, engine: Engine, rpc: ClusterRpc, context: NodeContext, statuses: StatusService) -> None:
        self._engine = engine
        self._rpc = rpc
        self._context = context
        self._statuses = statuses
        self._waiting: dict[Place, _HeldChange] = {}
        self._is_asking = False
        self.bus: BusTable = {SessionsQuestion: self._asked}

    def confirm(self, place: Place, state: State, show: Callable[[], None], attempts: int = 1) -> None:
        """Call `show` if the nodes confirm the user's new state. Calls during a question share the next question."""
        self._waiting[place] = _HeldChange(state, show, attempts)
        if not self._is_asking:
            self._is_asking = True
            self._context.tasks.spawn(self._ask())

    async def _ask(self) -> None:
        try:
            while self._waiting:
                places = [*self._waiting][:AT_ONCE]
                changes = [self._waiting.pop(place) for place in places]
                nodes = {*self._engine.live_nodes()} - {self._rpc.name()}
                answers = await self._rpc.ask(nodes, partial(SessionsQuestion, places), WITHIN_S)
                known = [answer for answer in answers.values() if len(answer) == len(places)]
                complete = len(known) == len(nodes)
                for place, change, *seen in zip(places, changes, self._seen(places), *known, strict=True):
                    best = Seen(min(max(seen), Seen.HIDDEN))  # a newer version may know more states
                    if is_confirmed(change.state, best, complete=complete):
                        self._show(change.show)
                    elif best is Seen.HIDDEN:  # the user may be visible again, and the node learns this soon
                        self._context.timers.set(HIDDEN_S, self._ask_again, (place, change))
                    elif len(answers) < len(nodes) and is_possible(change.state, best):
                        self._repeat(place, change)
        finally:
            self._is_asking = False

    def _ask_again(self, asked: tuple[Place, _HeldChange]) -> None:
        place, change = asked
        if place not in self._waiting and change.attempts < HIDDEN_ATTEMPTS:
            self.confirm(place, change.state, change.show, change.attempts + 1)

    def _repeat(self, place: Place, change: _HeldChange) -> None:
        """Ask again about a change that the answer of a silent node may confirm, unless there is a newer change."""
        if change.attempts < ATTEMPTS:
            self._waiting.setdefault(place, change._replace(attempts=change.attempts + 1))

    def _show(self, show: Callable[[], None]) -> None:
        try:
            show()
        except Exception as error:  # the other changes must still be shown
            log(log_events.WORK_FAILED, error, work="showing a change after a loss")

    def _asked(self, topic: Topic, message: SessionsQuestion) -> None:
        answer = ClusterAnswer(message.number, topic.name, self._seen(message.places))
        self._engine.publish(Topic("node", "", message.asker), answer)

    def _seen(self, places: Iterable[Place]) -> bytes:
        """Return what the sessions of this node show, a byte for each place."""
        return bytes(self._best(*place) for place in places)

    def _best(self, tenant: str, user: str, room: str) -> Seen:
        sessions = [s for s in self._context.registry.sessions_of(tenant, user) if not self._is_over(s)]
        if room:
            inside = any(room in (session.rooms or ()) for session in sessions)
            return Seen.ACTIVE if inside and not self._statuses.is_invisible((tenant, user)) else Seen.NOTHING
        if sessions and self._statuses.is_invisible((tenant, user)):
            return Seen.HIDDEN
        return max((Seen.IDLE if session.idle else Seen.ACTIVE for session in sessions), default=Seen.NOTHING)

    def _is_over(self, session: Session) -> bool:
        """Return whether a session has ended, although its end may not be written yet."""
        if session.connection is not None or session.leaving is None:
            return False
        return session.moved or not session.leaving.since(self._context.timers.now())[0]
