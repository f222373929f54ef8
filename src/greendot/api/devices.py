"""Devices over HTTP, and what their users chose: for apps that register them by themselves."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.api.backend import Backend
from greendot.api.problem import Problem
from greendot.api.request import json, path_id, read_body
from greendot.protocol.commands import PushProvider
from greendot.store.pushes import Choices, Device

SHOWN_OF_A_TOKEN = 6  # characters at its end: enough to tell two apart

Minute = Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class PutDevice(Struct):
    """The body of PUT /v1/users/{user}/devices/{device}."""

    provider: PushProvider
    token: str


class ShownDevice(Struct):
    """A device, with as much of its token as tells it from others."""

    device: str
    provider: PushProvider
    token: str
    created_at: int
    used_at: int


class QuietHours(Struct):
    """Over midnight if `ends` is before `begins`."""

    begins: Minute
    ends: Minute


class PushChoices(Struct):
    """The body of PUT /v1/users/{user}/push, and what GET answers: what is left out is as for everybody."""

    time_zone: Annotated[str, Meta(max_length=64)] = "UTC"
    quiet_hours: QuietHours | None = None


class DeviceRoutes:
    """`/v1/users/{user}/devices` and `/v1/users/{user}/push`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> list[Route]:
        device, push = "/v1/users/{user}/devices/{device}", "/v1/users/{user}/push"
        return [
            Route("/v1/users/{user}/devices", self.list),
            Route(device, self.put, methods=["PUT"]),
            Route(device, self.remove, methods=["DELETE"]),
            Route(push, self.choices),
            Route(push, self.choose, methods=["PUT"]),
        ]

    async def list(self, request: Request) -> Response:
        found = await self._backend.devices.of(self._key(request))
        return json({"devices": [_shown(device) for device in found]})

    async def put(self, request: Request) -> Response:
        key, device = self._key(request), path_id(request, "device")
        given = await read_body(request, PutDevice)
        is_new = await self._backend.devices.register(key, device, given.provider, given.token)
        return json({"user": key[1], "device": device, "provider": given.provider}, 201 if is_new else 200)

    async def remove(self, request: Request) -> Response:
        key, device = self._key(request), path_id(request, "device")
        if not await self._backend.devices.remove(key, device):
            raise Problem(404, f"{key[1]!r} has no device {device!r} registered")
        return Response(status_code=204)

    async def choices(self, request: Request) -> Response:
        return json(_told(await self._backend.store.choices(*self._key(request))))

    async def choose(self, request: Request) -> Response:
        key, given = self._key(request), await read_body(request, PushChoices)
        if not self._backend.is_zone(given.time_zone):
            raise Problem(
                400, f"no time zone is called {given.time_zone!r}; write one such as Europe/Berlin", code="bad_field"
            )
        quiet = given.quiet_hours or QuietHours("00:00", "00:00")
        chosen = Choices(given.time_zone, _minutes(quiet.begins), _minutes(quiet.ends))
        await self._backend.store.put_choices(*key, chosen)
        return json(_told(chosen))

    def _key(self, request: Request) -> tuple[str, str]:
        return self._backend.keys.tenant(request), path_id(request, "user")


def _shown(device: Device) -> ShownDevice:
    token = f"…{device.token[-SHOWN_OF_A_TOKEN:]}"
    return ShownDevice(device.device, device.provider, token, device.created_at, device.used_at)


def _told(chosen: Choices) -> PushChoices:
    if chosen.quiet_begins == chosen.quiet_ends:
        return PushChoices(chosen.zone)
    return PushChoices(chosen.zone, QuietHours(_clock(chosen.quiet_begins), _clock(chosen.quiet_ends)))


def _minutes(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"
