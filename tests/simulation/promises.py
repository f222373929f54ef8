"""Promises of presence, watching, typing and rooms, checked against what the devices really did.

`written` sees each frame at the moment when a node writes it. Each broken promise is named; see docs/faults.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from greendot.connect.recovery import JITTER_S
from greendot.testing.clock import START_MS
from simulation.access import Access
from simulation.engine import GRACE_S, LEASE_S, RECONNECT_S, RENEW_S, SAMPLE_S
from simulation.rules import Periods, protected_until, wrong_change

if TYPE_CHECKING:
    from simulation.clients import Contact, Device
    from simulation.nodes import ClusterNode, World

CLEAN_S, SILENT_S, DEAD_S = 5.0, 15.0, 75.0
HEAL_S = 12.0  # until a node that was paused or cut off has restored its sessions
# Until a node has found the link, connected, waited at random, and written its sessions again.
RESTORE_S = SAMPLE_S + RECONNECT_S + JITTER_S + 0.7
ABSENT_S = LEASE_S + GRACE_S - RENEW_S - SAMPLE_S  # from the start of an absence to the end of its sessions, at least
SLACK_S = 1.5  # for delays of the network
HOLD_S = 5.0  # typing
NOTICED_S = 1.5  # until every node has noticed a failover
COMPARED_S = 7.0  # from the end of an outage of the store until nodes have compared statuses with it
PERIODS = Periods(GRACE_S, CLEAN_S, SILENT_S, DEAD_S, SLACK_S)
INVARIANTS = {
    "no-flicker": "a user with a session, or within the grace, is never shown offline",
    "offline-once": "each watcher gets each change once",
    "versions-rise": "a watcher never gets an older state after a newer one",
    "screen-true": "after a fault has healed, every screen shows the true state",
    "no-ghost": "a user who is gone is offline after the lease, the grace and a bound",
    "last-seen-true": "last-seen is never later than the last connection",
    "typing-ends": "typing ends at every receiver, at most the hold time and a bound after the last start",
    "typing-true": "no user is shown typing who has not typed within the hold time",
    "typing-not-echoed": "no device gets the typing of its own user",
    "hidden": "a user who is invisible is not shown to others in any way",
    "occupancy-true": "after a fault has healed, the list of occupants is true",
    "records": "each device gets each message and notification once, in order and without a gap, and none is lost",
    "counters-true": "the counters of an inbox equal a recount, and every device shows them",
    "removed": "a user who was removed from a room gets nothing of it",
    "revoked": "nothing is written to a connection whose token is revoked",
    "tenants-apart": "a client gets nothing of another tenant, whose users and rooms have the same names",
    "intruder": "an intruder gets no session, no room and no answer that it may not have",
    "bounded": "when all clients are gone, no node and no engine keeps anything of them",
    "no-error": "no task or callback of a node fails",
}


class Broken(AssertionError):
    """Broken promise."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        assert invariant in INVARIANTS, invariant
        self.invariant = invariant


class _View:
    """Frames of one connection, as far as later checks need them."""

    def __init__(self) -> None:
        self.presence: dict[str, dict[str, Any]] = {}
        self.typing: dict[str, float] = {}  # user → time at which the node must have written the end


class Promises:
    """Truth about users, and the checks."""

    def __init__(self, world: World, users: list[str], broken: Callable[[Broken], None]) -> None:
        self.world = world
        self.users = users
        self.contacts: list[Contact] = []
        self.flushes: list[float] = []  # losses of data, also by a failover
        self.failovers: list[float] = []
        self.outages: list[tuple[float, float]] = []  # of the store: start and end
        self.sick: list[tuple[ClusterNode, float, float | None]] = []  # node, start and end of a fault
        self.access = Access(self)
        self._broken = broken
        self._views: dict[int, _View] = {}
        self._typed: dict[str, float] = {}
        self._invisible: dict[str, float] = {}  # user → time of the reply
        self._statuses: dict[str, str] = {}  # as of the last reply
        self._doubtful: set[str] = set()  # status is on its way
        self._unanswered: dict[str, int] = {}  # user → statuses on their way, or without a reply
        self._contested: set[str] = set()  # users with two statuses on their way
        self._spans: dict[str, list[tuple[float, float]]] = {}  # user → times at which the status may be invisible
        self._stalled: dict[int, float] = {}

    @property
    def now(self) -> float:
        return self.world.universe.now

    def fail(self, invariant: str, text: str) -> None:
        self._broken(Broken(invariant, text))

    # --- from devices and faults ---

    def typed(self, user: str) -> None:
        self._typed[user] = self.now

    def ended(self, contact: Contact) -> None:
        self._views.pop(id(contact), None)

    def stalled(self, contact: Contact | None, until: float) -> None:
        self._stalled[id(contact)] = until

    def status_sent(self, user: str) -> None:
        """Expect any status until the reply. The order of two statuses on their way at the same time is unknown."""
        if self._unanswered.get(user):
            self._contested.add(user)
        self._invisible.pop(user, None)
        self._unanswered[user] = self._unanswered.get(user, 0) + 1
        self._doubtful.add(user)
        self._spans.setdefault(user, []).append((self.now, float("inf")))

    def status_set(self, user: str, status: str) -> None:
        """Note the reply. While a later status is on its way, it decides nothing."""
        self._unanswered[user] -= 1
        if self._unanswered[user]:
            return
        if user in self._contested:
            self._contested.discard(user)
            return  # the next status decides
        self._doubtful.discard(user)
        self._statuses[user] = status
        if status == "invisible":
            self._invisible[user] = self.now
        else:
            self._spans[user] = [(start, min(end, self.now + SLACK_S)) for start, end in self._spans[user]]

    def fell_sick(self, node: ClusterNode) -> None:
        self.sick.append((node, self.now, None))

    def got_well(self, node: ClusterNode) -> None:
        self.sick = [(n, start, self.now if n is node and end is None else end) for n, start, end in self.sick]

    # --- truth ---

    def is_protected(self, user: str, at: float) -> bool:
        """Return whether the user must not be offline at this time, whatever the faults do."""
        return any(self._protects(contact, at) for contact in self.contacts if contact.device.user == user)

    def _protects(self, contact: Contact, at: float) -> bool:
        begin = contact.welcomed_at
        if begin is None or at < begin:
            return False
        end = self._end_of_protection(contact)
        away, back = 0.0, float("-inf")  # start of the node's absence, and end of its previous fault
        for node, sick, well in self.sick:
            if node is contact.node and sick <= min(at, end):
                # A node that falls sick again before it can have restored its sessions was away all the time.
                away, back = sick if sick >= back + RESTORE_S else away, float("inf") if well is None else well
                healed = back + HEAL_S
                # A dead node ends nothing before its grace is over. A client that was connected continues afterwards.
                lapses = min(sick + GRACE_S, away + ABSENT_S)
                if lapses <= at < healed or (begin < healed and at < healed and self._flushed(away - HEAL_S, at)):
                    return False
                if begin >= away and at < healed:
                    return False
                if contact.ended_at is not None and sick <= contact.ended_at:
                    end = min(end, lapses)
        return at < end

    def _failed_over(self, start: float, end: float) -> bool:
        return any(start <= failover <= end for failover in self.failovers)

    def _flushed(self, start: float, end: float) -> bool:
        return any(start <= flush <= end for flush in self.flushes)

    @staticmethod
    def _end_of_protection(contact: Contact) -> float:
        end = protected_until(contact, PERIODS)
        if contact.superseded_at is not None:
            end = min(end, contact.superseded_at)
        return end

    def is_online(self, user: str) -> bool:
        """Return whether the user has an open connection. Ask only when every fault has healed."""
        return any(
            c.device.user == user
            and c.ended_at is None
            and c.welcomed_at is not None
            and c.last_frame_at + DEAD_S > self.now
            for c in self.contacts
        )

    def _last_there(self, user: str) -> float:
        """Return the last time at which a device of the user was connected."""
        found = 0.0
        for contact in self.contacts:
            if contact.device.user == user:  # also without a welcome: the node may know the session
                end = self.now if contact.ended_at is None else contact.ended_at + contact.noticed_s
                if contact.how == "half_open":
                    end = self.now if contact.ended_at is None else contact.ended_at + DEAD_S
                found = max(found, self._noticed(contact.node, end))
        return found

    def _noticed(self, node: ClusterNode, at: float) -> float:
        """Return when a node could notice what happened at this time: a paused one reads old frames later."""
        for sick_node, start, end in self.sick:
            if sick_node is node and start <= at + SLACK_S and (end is None or at <= end):
                return self.now if end is None else end
        return at

    def is_steady(self, node: ClusterNode, since: float) -> bool:
        """Return whether a node had no fault since then."""
        return node.is_up and all(n is not node or (end is not None and end < since) for n, _, end in self.sick)

    def is_steady_for(self, contact: Contact, seconds: float) -> bool:
        """Return whether the node of a contact had no fault for some time."""
        return self.is_steady(contact.node, self.now - seconds)

    # --- frames ---

    def written(self, contact: Contact, frame: dict[str, Any]) -> None:
        """Check a frame that a node writes to a connection."""
        if contact.device.is_stranger:
            self.access.written_to_stranger(contact, frame)
            return
        self.access.written(contact, frame)
        view = self._views.setdefault(id(contact), _View())
        data = frame.get("data", {})
        match frame["type"]:
            case "presence.changed":
                self._presence(contact, view, data, is_event=True)
            case "reply" if isinstance(data.get("presence"), list):
                for entry in data["presence"]:
                    self._presence(contact, view, entry, is_event=False)
            case "typing.started":
                self._typing(contact, view, data)
            case "typing.stopped":
                view.typing.pop(data["user"], None)
            case "room.entered" | "room.left":
                self._occupancy(contact, frame["type"], data["user"])

    def _presence(self, contact: Contact, view: _View, entry: dict[str, Any], *, is_event: bool) -> None:
        user, before = entry["user"], view.presence.get(entry["user"])
        view.presence[user] = entry
        if user == contact.device.user:
            return
        who = f"{contact.device} on {contact.node} gets {entry}"
        if entry["state"] != "offline":
            # A state from before may be repeated while a fault lasts.
            at = self._invisible.get(user, float("inf"))
            is_new = START_MS + at * 1000 < entry["version"]
            if (is_new and not self._could_not_read(at)) or (at < self.now and not self._any_sick(at - HEAL_S)):
                self.fail("hidden", who)
        else:
            self._offline(user, entry, who)
        if wrong := wrong_change(before, entry, is_event=is_event):
            self.fail(wrong[0], f"{who} {wrong[1]}")

    def _offline(self, user: str, entry: dict[str, Any], who: str) -> None:
        if entry.get("stale"):
            return
        since = self.now if entry["since"] is None else (entry["since"] - START_MS) / 1000
        is_visible = not any(start <= at <= end for start, end in self._spans.get(user, ()) for at in (since, self.now))
        if is_visible and since > self.now + 0.01:
            self.fail("no-flicker", f"{who}, in the future")
        is_early = self._failed_over(since - NOTICED_S, since)  # older data, and a node that has not noticed them
        # Without a time, a node computed the state after a loss. As after any other state, the message about a later
        # change may be on its way: a user who has just come is not protected yet.
        times = [since] if entry["since"] is not None else [since - SLACK_S, since]
        is_protected = all(self.is_protected(user, at) for at in times)
        if is_visible and entry["version"] and is_protected and not is_early:
            self.fail("no-flicker", f"{who}, since {since:.3f}")
        if entry["last_seen"] is not None and is_visible:
            last_seen = (entry["last_seen"] - START_MS) / 1000
            # The store keeps the time of a periodic write, when the user was still within the grace.
            slack_s = SLACK_S + GRACE_S if entry["since"] is None else SLACK_S
            left = self._last_there(user)
            # A session that older data bring back ends again when its node compares its sessions.
            if last_seen > left + slack_s and not self._failed_over(left - SLACK_S, last_seen):
                self.fail("last-seen-true", f"{who}, last seen {last_seen:.3f}, left {left:.3f}")

    def _typing(self, contact: Contact, view: _View, data: dict[str, Any]) -> None:
        user, node = data["user"], contact.node
        who = f"{contact.device} on {node} gets {data}"
        if user == contact.device.user:
            self.fail("typing-not-echoed", who)
        if user in self._invisible and not self._any_sick(self._invisible[user] - HEAL_S):
            self.fail("hidden", who)
        last = self._typed.get(user, float("-inf"))
        left_s = data["expires_in_ms"] / 1000
        if left_s > HOLD_S:
            self.fail("typing-ends", f"{who}, for too long")
        if self.now > last + HOLD_S + SLACK_S and not self._any_sick(last):
            self.fail("typing-true", f"{who}, {self.now - last:.3f} s after the last start")
        due = view.typing[user] = self.now + left_s + SLACK_S
        self.world.universe.at(due, self._typing_due, contact, user, due)

    def _typing_due(self, contact: Contact, user: str, due: float) -> None:
        view = self._views.get(id(contact))
        if (
            view is None
            or view.typing.get(user) != due
            or contact.ended_at is not None
            or contact.closed_at is not None
        ):
            return
        if self.is_steady(contact.node, due - 10) and self._stalled.get(id(contact), 0.0) < due - 10:
            self.fail("typing-ends", f"{contact.device} on {contact.node} still shows {user} typing")

    def _could_not_read(self, at: float) -> bool:
        """Return whether a node that missed a status set at this time could not read it since: the store fails.

        The node restores the users of its sessions with the statuses that it knows.
        """
        failing = [end for start, end in self.outages if start <= self.now <= end + COMPARED_S]
        return any(
            start <= at <= well and well <= outage
            for _, start, well in self.sick
            if well is not None
            for outage in failing
        )

    def _any_sick(self, since: float) -> bool:
        return any(end is None or end >= since for _, _, end in self.sick)

    def _occupancy(self, contact: Contact, kind: str, user: str) -> None:
        at = self._invisible.get(user)
        if (
            kind == "room.entered"
            and at is not None
            and user != contact.device.user
            and not self._any_sick(at - HEAL_S)
        ):
            self.fail("hidden", f"{contact.device} gets {kind} of {user}")

    # --- end ---

    def check_end(self, devices: list[Device], reads: dict[str, tuple[list[dict[str, Any]], list[str]]]) -> None:
        """Check the screens, and what each node answers, when every fault has healed and every grace is over."""
        truth = {user: self.is_online(user) and user not in self._invisible for user in self.users}
        for device in devices:
            if not device.is_ready or device.is_silent or device.is_stranger:
                continue
            for user, entry in device.screen.items():
                if user != device.user and user not in self._doubtful:
                    self._compare(f"the screen of {device}", entry, truth[user])
        for name, (entries, occupants) in reads.items():
            reader = name.split("/")[0]
            for entry in entries:
                if entry["user"] not in (reader, *self._doubtful):
                    self._compare(f"the answer to {name}", entry, truth[entry["user"]])
            skipped = {reader, *self._doubtful}
            expected = [user for user in self.users if truth[user] and user not in skipped]
            if sorted({*occupants} - skipped) != expected:
                self.fail("occupancy-true", f"{name} gets {occupants}, and {expected} are there")

    def _compare(self, what: str, entry: dict[str, Any], is_there: bool) -> None:
        if is_there and entry["state"] == "offline":
            self.fail("screen-true", f"{what} has {entry}, who is online")
        elif not is_there and entry["state"] != "offline":
            self.fail("no-ghost", f"{what} has {entry}, who is gone")
        elif is_there and (entry["state"] == "busy") != (self._statuses.get(entry["user"]) == "busy"):
            self.fail("screen-true", f"{what} has {entry}, whose status is {self._statuses.get(entry['user'], 'auto')}")


def bound_s() -> float:
    """Return the time after the last fault until every user who is gone must be offline."""
    return max(DEAD_S + SILENT_S, LEASE_S + GRACE_S) + GRACE_S + HEAL_S
