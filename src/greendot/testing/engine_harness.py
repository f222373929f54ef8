"""Harness of an engine under test, and the helpers that all its tests use."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from greendot.engine.messages import Message, Topic
from greendot.engine.port import Engine
from greendot.presence.model import Change, ManualStatus, SessionEpoch, Snapshot

T = "t1"  # a tenant
AUTO = ManualStatus(rev=1)


class EngineHarness(Protocol):
    """Engine under test with one registered node, and control of its time."""

    engine: Engine
    incarnation: str
    heard: list[tuple[Topic, Message]]

    async def advance(self, seconds: float) -> None:
        """Let engine time pass."""
        ...

    async def settle(self) -> None:
        """Return when every message published so far has been received."""
        ...


class EngineTests:
    """Tests of an engine; a subclass defines `harness`."""

    def harness(self) -> AbstractAsyncContextManager[EngineHarness]:
        raise NotImplementedError

    # --- helpers ---

    @staticmethod
    async def come(
        h: EngineHarness, user: str, session: str = "s1", *, device: str = "d1", conn: int = 1
    ) -> SessionEpoch:
        ref = SessionEpoch(session, h.incarnation, conn)
        touched = await h.engine.touch(T, user, ref, device, False, user.title())
        if not touched.status_known:
            await h.engine.set_status(T, user, AUTO)
        return ref

    @staticmethod
    async def see(h: EngineHarness, user: str) -> Snapshot:
        (snapshot,) = await h.engine.read(T, [user])
        return snapshot

    @staticmethod
    async def changes(h: EngineHarness, user: str) -> list[str]:
        """Return the public states of a user that were published since the last call."""
        await h.settle()
        topic = Topic("watch", T, user)
        told = [m for t, m in h.heard if t == topic and isinstance(m, Change) and m.public]
        h.heard.clear()
        return [change.visible.state for change in told]
