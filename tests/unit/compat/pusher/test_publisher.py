"""Events of a Pusher app in rooms that change meanwhile."""

from __future__ import annotations

from typing import Any

from greendot.errors import RoomBeingDeleted
from greendot.testing.server import serving

from .test_http import BASE, event, post
from .wire import APP


async def test_the_first_event_of_a_cache_channel_does_not_open_a_room_that_the_app_has_just_closed() -> None:
    async with serving(pusher=APP) as served:
        messages, append, is_first = served.node.room_messages, served.node.room_messages.append, True

        async def late(tenant: str, room: str, *more: Any, **named: Any) -> Any:
            nonlocal is_first
            try:
                return await append(tenant, room, *more, **named)
            finally:
                if is_first:
                    is_first = False
                    await served.node.store.put_room(tenant, room, open=False)

        messages.append = late  # type: ignore[method-assign]
        assert (await post(served, f"{BASE}/events", event(channels=["cache-plan"]))).status == 200
        room = await served.node.store.room("default", "cache-plan")
        assert room is not None
        assert not room.open


async def test_an_event_for_a_room_that_is_being_deleted_is_to_be_sent_again() -> None:
    async with serving(pusher=APP) as served:

        async def deleting(tenant: str, room: str, **more: Any) -> Any:
            raise RoomBeingDeleted(room)

        served.node.store.put_room = deleting  # type: ignore[method-assign]
        answer = await post(served, f"{BASE}/events", event(channels=["cache-plan"]))
        assert answer.status == 503
        assert answer.headers["retry-after"] == "10"
