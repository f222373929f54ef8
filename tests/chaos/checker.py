"""Checker of a run with real processes: what clients receive, compared with what their users really did.

Times are seconds of the wall clock of the run, which no fault changes. Nodes show times of the engine.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from chaos.story import Story
from simulation.promises import INVARIANTS as OF_PRESENCE
from simulation.rules import Periods, protected_until, wrong_change, wrong_number

LEASE_S, RENEW_S, HEARTBEAT_S = 6.0, 2.0, 5.0
HOLD_S = 5.0  # typing
PERIODS = Periods(grace_s=8.0, clean_s=3.0, silent_s=4.0, dead_s=12.0, slack_s=0.5)
# Nothing below measures the speed of the machine: a busy machine makes receivers late by seconds.
LATE_S = 10.0
GONE_S = max(LEASE_S + PERIODS.grace_s, PERIODS.dead_s + PERIODS.silent_s) + LATE_S
SHARED = (
    *("no-flicker", "offline-once", "versions-rise", "screen-true", "no-ghost", "last-seen-true"),
    *("typing-ends", "typing-true", "typing-not-echoed", "occupancy-true"),
)
INVARIANTS = {name: OF_PRESENCE[name] for name in SHARED} | {
    "records-in-order": "messages and notifications arrive without a gap, in order and once",
    "records-same": "a number names the same message for each receiver, and a key one number",
    "records-kept": "no confirmed message or notification is lost",
    "counters-true": "unread counters equal a recount",
    "heals": "after a fault, every client, node and screen is in step again within the bound",
    "stays-up": "no node ends, except when a fault ends it",
    "no-error": "no node logs an error",
}


class Contact(Struct, eq=False):
    """One connection of a device, as the device knows it."""

    user: str
    device: str
    hello_at: float
    last_frame_at: float
    welcomed_at: float | None = None
    node: str = ""
    ended_at: float | None = None
    how: str = ""  # lost, silent, clean, bye, server
    closed_code: int = 0
    closed_at: float | None = None  # only the node knows it
    lost_at: float | None = None  # end of the socket of a silent device
    followed_at: float | None = None  # welcome of the device's next connection

    def __str__(self) -> str:
        return f"{self.user}/{self.device}"


class Allowance(Struct):
    """Effect that a fault has by its nature: these users may be shown as offline from `start` on."""

    why: str
    users: frozenset[str]
    start: float
    end: float = float("inf")


class Finding(Struct):
    """Broken promise."""

    at: float
    invariant: str
    text: str


class View:
    """Frames of one connection, as far as later checks need them."""

    def __init__(self) -> None:
        self.presence: dict[str, dict[str, Any]] = {}
        self.typing: dict[tuple[str, str], float] = {}


class Checker:
    """Truth about users and records, and the checks."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.findings: list[Finding] = []
        self.allowed: Counter[str] = Counter()
        self.checked: Counter[str] = Counter()  # invariant → comparisons
        self.seen: Counter[str] = Counter()  # effects that clients may notice, since the last reset
        self.longest: dict[str, float] = {}  # kind → seconds, since the last reset
        self.allowances: list[Allowance] = []
        self.faults: list[tuple[float, float]] = []  # start and end; the end of a running fault is infinite
        self.disturbances: list[tuple[float, float]] = []  # the machine did not keep up, or a node had trouble
        self.contacts: dict[str, list[Contact]] = {}
        self.frames = 0
        self.records = Records(self)
        self._views: dict[Contact, View] = {}
        self._typed: dict[tuple[str, str], float] = {}

    # --- findings ---

    def fail(self, invariant: str, text: str) -> None:
        assert invariant in INVARIANTS, invariant
        self.findings.append(Finding(self.story.at, invariant, text))
        if len(self.findings) <= 20:
            self.story.show("CHECKER", f"{invariant}: {text}")
        else:
            self.story.add("CHECKER", f"{invariant}: {text}")

    def reset(self) -> None:
        """Begin to count the effects of another fault."""
        self.seen.clear()
        self.longest.clear()

    def took(self, kind: str, seconds: float) -> None:
        self.longest[kind] = max(self.longest.get(kind, 0.0), seconds)

    # --- truth ---

    def fault_began(self) -> None:
        self.faults.append((time.time(), float("inf")))

    def fault_ended(self) -> None:
        self.faults[-1] = (self.faults[-1][0], time.time())

    def is_calm(self, since: float) -> bool:
        """Return whether no fault and no recovery ran since then, and every process kept up."""
        return all(end < since for _, end in (*self.faults, *self.disturbances[-100:]))

    def began(self, contact: Contact) -> None:
        self.contacts.setdefault(contact.user, []).append(contact)

    def welcomed(self, contact: Contact) -> None:
        contact.welcomed_at = time.time()
        self._views[contact] = View()
        for earlier in self.contacts[contact.user]:
            if earlier is not contact and earlier.device == contact.device and earlier.followed_at is None:
                earlier.followed_at = contact.welcomed_at

    def ended(self, contact: Contact, how: str, code: int = 0) -> None:
        if contact.ended_at is None:
            contact.ended_at, contact.how, contact.closed_code = time.time(), how, code
            self._views.pop(contact, None)
        elif contact.how == "silent" and contact.lost_at is None:
            contact.lost_at = time.time()

    def typed(self, user: str, room: str) -> None:
        self._typed[user, room] = time.time()

    def is_protected(self, user: str, at: float) -> bool:
        """Return whether the user must not be shown as offline at this time."""
        return any(self._protects(contact, at) for contact in self.contacts.get(user, ()))

    @staticmethod
    def _protects(contact: Contact, at: float) -> bool:
        if contact.welcomed_at is None or at < contact.welcomed_at:
            return False
        end = protected_until(contact, PERIODS)
        if contact.how == "silent":
            end = contact.last_frame_at + PERIODS.dead_s
            if contact.lost_at is not None:  # a fault has ended the socket before the node noticed the silence
                end = min(end, contact.lost_at + PERIODS.grace_s)
        if contact.followed_at is not None:
            end = min(end, contact.followed_at)
        return at < end - PERIODS.slack_s

    def is_there(self, user: str) -> bool | None:
        """Return whether the user must be shown as present; None while this changes."""
        contacts = self.contacts.get(user, [])
        if any(c.welcomed_at is not None and c.ended_at is None for c in contacts):
            return True
        last = max((c.ended_at or c.last_frame_at for c in contacts), default=0.0)
        return False if time.time() > last + GONE_S else None

    def users_on(self, node: str) -> frozenset[str]:
        """Return the users with a connection to a node, or to an unknown one, now or within its grace."""
        since = time.time() - PERIODS.grace_s
        return frozenset(
            user
            for user, contacts in self.contacts.items()
            if any(c.node in (node, "") and (c.ended_at is None or c.ended_at > since) for c in contacts)
        )

    def _allowed(self, user: str, at: float) -> str | None:
        return next((a.why for a in self.allowances if user in a.users and a.start <= at <= a.end), None)

    # --- frames ---

    def received(self, contact: Contact, kind: str, data: dict[str, Any]) -> None:
        """Check a frame that a client received."""
        self.frames += 1
        view = self._views.get(contact)
        if view is None:
            return
        match kind:
            case "presence.changed":
                self._presence(contact, view, data, is_event=True)
            case "typing.started":
                self._typing(contact, view, data)
            case "typing.stopped":
                view.typing.pop((data["room"], data["user"]), None)

    def snapshot(self, contact: Contact, entries: Iterable[dict[str, Any]]) -> None:
        """Check the entries of a reply."""
        view = self._views.get(contact)
        for entry in entries:
            if view is not None:
                self._presence(contact, view, entry, is_event=False)

    def _presence(self, contact: Contact, view: View, entry: dict[str, Any], *, is_event: bool) -> None:
        user, before = entry["user"], view.presence.get(entry["user"])
        view.presence[user] = entry
        if user == contact.user:
            return
        who = f"{contact} on {contact.node} gets {_short(entry)}"
        if entry.get("stale"):
            self.seen["stale entries"] += 1
        elif entry["state"] == "offline":
            self._offline(user, entry, who)
        if before is not None and before["version"] and entry["version"]:
            self.checked["versions-rise"] += 1
            self.checked["offline-once"] += is_event
        if wrong := wrong_change(before, entry, is_event=is_event):
            self.fail(wrong[0], f"{who} {wrong[1]}")

    def _offline(self, user: str, entry: dict[str, Any], who: str) -> None:
        now = time.time()
        since = now if entry.get("since") is None else entry["since"] / 1000
        if since > now + PERIODS.slack_s:
            self.fail("no-flicker", f"{who}, in the future")
        self.checked["no-flicker"] += bool(entry["version"])
        if entry["version"] and self.is_protected(user, since):
            why = self._allowed(user, since)
            if why is None:
                self.fail("no-flicker", f"{who}, {now - since:.2f} s ago; {self._explain(user, since)}")
            else:
                self.allowed[why] += 1
                self.seen["users shown offline (allowed)"] += 1
        last_seen = entry.get("last_seen")
        if last_seen is not None and (contacts := self.contacts.get(user)):
            # A record of the store is as old as the last write, when the user was still within the grace.
            slack_s = LATE_S if self.is_calm(now - GONE_S) else LATE_S + GONE_S
            last = max(c.ended_at or now for c in contacts)
            self.checked["last-seen-true"] += 1
            if last_seen / 1000 > last + slack_s:
                self.fail("last-seen-true", f"{who}, left {last:.2f}")

    def _explain(self, user: str, at: float) -> str:
        lines = []
        for c in self.contacts.get(user, ())[-3:]:
            end = "open" if c.ended_at is None else f"{c.how} {c.closed_code or ''} {c.ended_at - at:+.2f}"
            begin = "no welcome" if c.welcomed_at is None else f"welcome {c.welcomed_at - at:+.2f}"
            lines.append(f"{c.device} on {c.node}: {begin}, {end}")
        return "; ".join(lines)

    def _typing(self, contact: Contact, view: View, data: dict[str, Any]) -> None:
        user, room, now = data["user"], data["room"], time.time()
        who = f"{contact} on {contact.node} gets typing of {user} in {room}"
        if user == contact.user:
            self.fail("typing-not-echoed", who)
        last = self._typed.get((user, room), 0.0)
        left_s = data["expires_in_ms"] / 1000
        if left_s > HOLD_S + PERIODS.slack_s:
            self.fail("typing-ends", f"{who}, for too long: {left_s:.1f} s")
        self.checked.update(("typing-not-echoed", "typing-ends", "typing-true"))
        if now > last + HOLD_S + LATE_S:
            if self.is_calm(last):
                self.fail("typing-true", f"{who}, {now - last:.1f} s after the last start")
            else:
                self.allowed["typing shown late during a fault"] += 1
        due = view.typing[room, user] = now + left_s + LATE_S
        asyncio.get_running_loop().call_later(left_s + LATE_S, self._typing_due, contact, (room, user), due)

    def _typing_due(self, contact: Contact, key: tuple[str, str], due: float) -> None:
        view = self._views.get(contact)
        if view is not None and view.typing.get(key) == due and self.is_calm(due - LATE_S - 2 * HOLD_S):
            self.fail("typing-ends", f"{contact} on {contact.node} still shows {key[1]} typing in {key[0]}")

    # --- comparison after a fault ---

    def stuck_typing(self) -> Iterable[tuple[str, str]]:
        """Return the typing that connections still show, long after the end that its frame gave."""
        now = time.time()
        for contact, view in self._views.items():
            self.checked["typing-ends"] += len(view.typing)
            for (room, user), due in view.typing.items():
                if due < now:
                    yield "typing-ends", f"{contact} on {contact.node} still shows {user} typing in {room}"

    def wrong_screen(self, owner: str, screen: dict[str, dict[str, Any]]) -> Iterable[tuple[str, str]]:
        """Return the differences between a screen and the truth, each with its invariant."""
        for user, entry in screen.items():
            there = None if user == owner else self.is_there(user)
            if there is not None:
                self.checked["screen-true" if there else "no-ghost"] += 1
            if there and (entry["state"] == "offline" or entry.get("stale")):
                yield "screen-true", f"{owner} sees {_short(entry)}, who is online"
            elif there is False and entry["state"] != "offline":
                yield "no-ghost", f"{owner} sees {_short(entry)}, who is gone"


class Records:
    """Messages and notifications: what senders know, and what receivers got."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self.sent: dict[tuple[str, str], float] = {}  # stream and key → time of the first attempt
        self.confirmed: dict[tuple[str, str], int] = {}  # stream and key → number
        self._keys: dict[str, dict[int, str]] = {}  # stream → number → key
        self._numbers: dict[tuple[str, str], int] = {}

    def sending(self, stream: str, key: str) -> None:
        self.sent.setdefault((stream, key), time.time())

    def confirm(self, stream: str, key: str, number: int) -> None:
        self.confirmed[stream, key] = number
        self._same(stream, number, key, "the reply to the sender")

    def delivered(self, contact: Contact, stream: str, last: int | None, number: int, key: str) -> None:
        """Check a record that a client shows after record `last`."""
        who = f"{contact} on {contact.node} gets {key} as number {number} of {stream}"
        self._checker.checked["records-in-order"] += last is not None
        if wrong := wrong_number(last, number):
            self._checker.fail(wrong[0], f"{who} {wrong[1]}")
        self._same(stream, number, key, who)
        begun = self.sent.get((stream, key))
        if begun is not None and contact.welcomed_at is not None and contact.welcomed_at < begun:
            self._checker.took("message delay", time.time() - begun)

    def _same(self, stream: str, number: int, key: str, who: str) -> None:
        self._checker.checked["records-same"] += 1
        known = self._keys.setdefault(stream, {}).setdefault(number, key)
        if known != key:
            self._checker.fail("records-same", f"{who}; others got {known} as number {number}")
        first = self._numbers.setdefault((stream, key), number)
        if first != number:
            self._checker.fail("records-same", f"{who}; others got it as number {first}")

    def compare(self, stream: str, history: list[tuple[int, str]]) -> None:
        """Check the whole stored stream: no gap, every confirmed record, no record twice."""
        numbers = [number for number, _ in history]
        if numbers != [*range(1, len(numbers) + 1)]:
            self._checker.fail("records-in-order", f"the history of {stream} has numbers {_gaps(numbers)}")
        stored = {key: number for number, key in history}
        for (of, key), number in self.confirmed.items():
            self._checker.checked["records-kept"] += of == stream
            if of == stream and stored.get(key) != number:
                self._checker.fail("records-kept", f"{key} of {stream} was confirmed as number {number}")
        for number, key in history:
            self._same(stream, number, key, f"the history of {stream}")


def _gaps(numbers: list[int]) -> str:
    wrong = [number for place, number in enumerate(numbers, 1) if number != place]
    return f"{wrong[:5]}… of {len(numbers)}"


def _short(entry: dict[str, Any]) -> str:
    fields = ("user", "state", "version", "since", "last_seen", "stale", "status_text")
    return " ".join(f"{name}={entry[name]}" for name in fields if entry.get(name) is not None)
