"""Random actions of a few users under each visibility policy, compared with the policy after each step."""

from __future__ import annotations

import random
from typing import Any

import pytest

from greendot.testing import Served, WireClient, serving
from greendot.visibility.model import Person, Policy, Privacy, VisibilityFacts, VisibilityPolicy, may_see

USERS = ["ann", "bob", "carl", "dan"]
ROOMS = ["r1", "r2"]
STEPS = 120
POLICIES: list[Policy] = ["tenant", "shared_rooms", "contacts", "recent_contacts"]
SHOWS = {"room.entered", "typing.started"}


class Trial:
    """Server with its users and their expected visibility."""

    def __init__(self, served: Served, policy: Policy, seed: int) -> None:
        self.served = served
        self.policy = policy
        self.random = random.Random(seed)
        self.clients: dict[str, WireClient] = {}
        self.hides: dict[str, set[str]] = {user: set() for user in USERS}
        self.discreet: set[str] = set()
        self.contacts: dict[str, dict[str, int]] = {user: {} for user in USERS}
        self.members: dict[str, set[str]] = {user: set() for user in USERS}
        self.invisible: set[str] = set()
        self.inside: dict[str, set[str]] = {user: set() for user in USERS}
        self.story: list[str] = []

    def facts(self, user: str) -> VisibilityFacts:
        privacy = Privacy("hidden" if user in self.discreet else "shown", frozenset(self.hides[user]))
        return VisibilityFacts(privacy, frozenset(self.members[user]), self.contacts[user])

    def sight(self, viewer: str, target: str, *, in_room: bool = False) -> str:
        rule = VisibilityPolicy(self.policy)
        people = Person(viewer, self.facts(viewer)), Person(target, self.facts(target))
        return may_see(rule.in_room if in_room else rule, *people, self.served.clock.now_ms())

    # --- actions ---

    async def step(self) -> None:
        steps = [self.hide, self.hide, self.last_seen, self.contact, self.contact, self.member, self.status, self.room]
        steps += [self.room, self.type, self.come_back]
        user = self.random.choice(USERS)
        await self.random.choice(steps)(user)
        await self.served.settle()
        self.served.clock.advance(0.01)

    async def hide(self, user: str) -> None:
        self.hides[user] = {other for other in USERS if other != user and self.random.random() < 0.3}
        await self.clients[user].request(type="privacy.set", hide_from=[*self.hides[user]])
        self.story.append(f"{user} hides from {self.hides[user]}")

    async def last_seen(self, user: str) -> None:
        self.discreet ^= {user}
        shown = "hidden" if user in self.discreet else "shown"
        await self.clients[user].request(type="privacy.set", last_seen=shown)
        self.story.append(f"{user}'s last seen is {shown}")

    async def contact(self, user: str) -> None:
        other = self.random.choice([other for other in USERS if other != user])
        visibility_updates, key, now = (
            self.served.node.visibility_updates,
            ("default", user),
            self.served.clock.now_ms(),
        )
        if other in self.contacts[user]:
            del self.contacts[user][other]
            await visibility_updates.remove_contact(key, other)
        else:
            self.contacts[user][other] = now
            await visibility_updates.put_contact(key, other, now)
        self.story.append(f"{user} has {[*self.contacts[user]]}")

    async def member(self, user: str) -> None:
        room, room_messages = self.random.choice(ROOMS), self.served.node.room_messages
        if room in self.members[user]:
            found = await self.served.node.store.room("default", room)
            assert found is not None
            await room_messages.remove_member("default", found, user)
        else:
            await room_messages.put_member("default", room, user, "member")
        self.members[user] ^= {room}
        self.story.append(f"{user} is a member of {self.members[user]}")

    async def status(self, user: str) -> None:
        status = self.random.choice(["auto", "busy", "invisible"])
        (self.invisible.add if status == "invisible" else self.invisible.discard)(user)
        await self.clients[user].request(type="status.set", status=status)
        self.story.append(f"{user} is {status}")

    async def room(self, user: str) -> None:
        room = self.random.choice(ROOMS)
        kind = "room.leave" if room in self.inside[user] else "room.join"
        await self.clients[user].request(type=kind, room=room)
        self.inside[user] ^= {room}
        self.story.append(f"{user}: {kind} {room}")

    async def type(self, user: str) -> None:
        for room in self.inside[user]:
            self.clients[user].send(type="typing.start", room=room)
        await self.clients[user].request(type="presence.get", users=[user])
        self.story.append(f"{user} types")

    async def come_back(self, user: str) -> None:
        """Reconnect without a resume."""
        if user in self.clients:
            self.clients[user].send(type="bye")
            await self.clients[user].closed()
            await self.served.settle()
        self.inside[user] = set()
        self.clients[user] = await self.served.client(user)
        await self.clients[user].request(type="watch", users=USERS)
        self.story.append(f"{user} comes")

    # --- invariants ---

    def visible(self, viewer: str, target: str, *, in_room: bool = False) -> bool:
        there = target == viewer or target not in self.invisible
        return there and self.sight(viewer, target, in_room=in_room) != "hidden"

    async def check(self) -> None:
        for viewer, client in self.clients.items():
            for frame in await self._unasked(client):
                self.check_frame(viewer, frame)
            reply = await client.request(type="presence.get", users=USERS)
            for entry in reply["presence"]:
                target = entry["user"]
                assert (entry["state"] != "offline") is self.visible(viewer, target), (viewer, entry, self.story[-8:])
            for room in self.inside[viewer]:
                reply = await client.request(type="room.present", room=room)
                there = [user for user in USERS if room in self.inside[user]]
                seen = [user for user in there if self.visible(viewer, user, in_room=True)]
                assert (reply["users"], reply["count"]) == (seen, len(seen)), (viewer, room, self.story[-8:])

    async def _unasked(self, client: WireClient) -> list[dict[str, Any]]:
        return [frame for frame in await client.quiet() if frame["type"] != "reply"]

    def check_frame(self, viewer: str, frame: dict[str, Any]) -> None:
        data = frame["data"]
        target = data.get("user")
        if frame["type"] == "presence.changed" and data["state"] != "offline":
            assert self.visible(viewer, target), (viewer, frame, self.story[-8:])
        elif frame["type"] in SHOWS:
            assert self.visible(viewer, target, in_room=True), (viewer, frame, self.story[-8:])
        elif frame["type"] == "presence.changed" and self.sight(viewer, target) == "without_last_seen":
            assert data["last_seen"] is None, (viewer, frame, self.story[-8:])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", POLICIES)
async def test_no_viewer_receives_what_the_policy_hides_and_all_viewers_what_it_shows(
    policy: Policy, seed: int
) -> None:
    async with serving(visibility={"policy": policy}, limits={"enabled": False}) as served:
        for room in ROOMS:
            await served.node.store.put_room("default", room, open=True)
        trial = Trial(served, policy, seed)
        for user in USERS:
            await trial.come_back(user)
        for _ in range(STEPS):
            await trial.step()
            await trial.check()


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_changes_sent_to_watchers_add_up_to_the_true_state(policy: Policy) -> None:
    """Apply changes as a client does: ignore older versions, and let version 0 replace any."""
    async with serving(visibility={"policy": policy}, limits={"enabled": False}) as served:
        for room in ROOMS:
            await served.node.store.put_room("default", room, open=True)
        trial = Trial(served, policy, seed=99)
        for user in USERS:
            await trial.come_back(user)
        shown: dict[tuple[str, str], dict[str, Any]] = {}
        for viewer, client in trial.clients.items():
            for entry in (await client.request(type="watch", users=USERS))["presence"]:
                shown[viewer, entry["user"]] = entry
        for _ in range(STEPS):
            user = trial.random.choice(USERS)
            await trial.random.choice([trial.hide, trial.last_seen, trial.contact, trial.member, trial.status])(user)
            await served.settle()
            served.clock.advance(0.01)
            for viewer, client in trial.clients.items():
                for frame in await client.quiet():
                    entry = frame["data"]
                    if frame["type"] == "presence.changed" and (
                        entry["version"] == 0 or entry["version"] >= shown[viewer, entry["user"]]["version"]
                    ):
                        shown[viewer, entry["user"]] = entry
            for (viewer, target), entry in shown.items():
                assert (entry["state"] != "offline") is trial.visible(viewer, target), (viewer, entry, trial.story[-8:])
