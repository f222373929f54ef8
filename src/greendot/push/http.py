"""HTTP routes of devices and of users' push choices, for apps that register devices themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from greendot.auth.api_keys import ApiKeys
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.http.request import Body, json, read_body
from greendot.ids import TEXT_PATTERN
from greendot.protocol.commands import PushProvider
from greendot.protocol.fields import PublicKeyField, about
from greendot.push.devices import DeviceService
from greendot.store.port import Store
from greendot.store.push import MOST_TOKEN, Choices, Device

SHOWN_OF_A_TOKEN = 6  # characters at the end of a token: enough to distinguish two tokens

Minute = Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
TimeZone = Annotated[str, Meta(max_length=64), about("Time zone of the quiet hours, such as Europe/Berlin.")]
_QUIET = about("Daily time in which pushes wait, except critical ones; null: none.")


class PutDevice(Body):
    """Registration of a device for pushes."""

    provider: Annotated[PushProvider, about("Service that delivers pushes to the device.")]
    token: Annotated[
        str,
        Meta(min_length=1, max_length=MOST_TOKEN, pattern=TEXT_PATTERN),
        about("Token of the device from the provider. For `webpush`, the subscription as a JSON string."),
    ]


class ShownDevice(Struct):
    """Device that is registered for pushes, with the end of its token."""

    device: Annotated[str, about("Name of the device.")]
    provider: Annotated[PushProvider, about("Service that delivers pushes to the device.")]
    token: Annotated[str, about("Last characters of the device's token, to distinguish tokens.")]
    created_at: Annotated[int, about("Time when the device was registered, in milliseconds UTC.")]
    used_at: Annotated[int, about("Time of the last registration of the device or push to it, in milliseconds UTC.")]


class Devices(Struct):
    """Devices of a user, in the order of their names."""

    devices: Annotated[list[ShownDevice], about("Devices, in the order of their names.")]


class Registered(Struct):
    """Device that was registered for pushes."""

    user: Annotated[str, about("Id of the user.")]
    device: Annotated[str, about("Name of the device.")]
    provider: Annotated[PushProvider, about("Service that delivers pushes to the device.")]


class PushKey(Struct):
    """Public key with which browsers subscribe to Web Push."""

    public_key: PublicKeyField


class QuietHours(Struct):
    """Daily time in which pushes wait, except critical ones. If `ends` is before `begins`, the time spans midnight."""

    begins: Annotated[Minute, about("Beginning, as hours and minutes such as 22:00.")]
    ends: Annotated[Minute, about("End, as hours and minutes such as 07:00.")]


class PushChoices(Struct):
    """Push settings of a user."""

    time_zone: TimeZone = "UTC"
    quiet_hours: Annotated[QuietHours | None, _QUIET] = None


class PutQuietHours(QuietHours, Body):
    """Daily time in which pushes wait, except critical ones. If `ends` is before `begins`, the time spans midnight."""


class PutPushChoices(Body):
    """Push settings of a user. An omitted field gets its default."""

    time_zone: TimeZone = "UTC"
    quiet_hours: Annotated[PutQuietHours | None, _QUIET] = None


class DeviceRoutes:
    """Routes of `/v1/users/{user}/devices`, `/v1/users/{user}/push` and `/v1/push/key`."""

    def __init__(
        self,
        keys: ApiKeys,
        store: Store,
        devices: DeviceService,
        is_zone: Callable[[str], bool],
    ) -> None:
        self._keys = keys
        self._store = store
        self._devices = devices
        self._is_zone = is_zone

    @operation("GET /v1/users/{user}/devices")
    async def devices(self, request: Request, user: str) -> Devices:
        """List the devices of a user that are registered for pushes."""
        found = await self._devices.of(self._key(request, user))
        return Devices([_shown(device) for device in found])

    @operation(
        "PUT /v1/users/{user}/devices/{device}", body=(PutDevice,), answers={201: (Registered,), 200: (Registered,)}
    )
    async def put(self, request: Request, user: str, device: str) -> Response:
        """Register a device for pushes. The answer is 200 if the same registration existed before."""
        given = await read_body(request, PutDevice)
        is_new = await self._devices.register(self._key(request, user), device, given.provider, given.token)
        return json(Registered(user, device, given.provider), 201 if is_new else 200)

    @operation("DELETE /v1/users/{user}/devices/{device}", fails=(404,))
    async def remove(self, request: Request, user: str, device: str) -> None:
        """Remove a device, so that it gets no more pushes."""
        if not await self._devices.remove(self._key(request, user), device):
            raise Problem(404, f"user {user!r} has no registered device {device!r}")

    @operation("GET /v1/users/{user}/push")
    async def choices(self, request: Request, user: str) -> PushChoices:
        """Return the push settings of a user."""
        return _choices_body(await self._store.choices(*self._key(request, user)))

    @operation("PUT /v1/users/{user}/push")
    async def choose(self, request: Request, user: str, body: PutPushChoices) -> PushChoices:
        """Set the push settings of a user."""
        if not self._is_zone(body.time_zone):
            raise Problem(
                400, f"unknown time zone {body.time_zone!r}; use a name such as Europe/Berlin", code="bad_field"
            )
        quiet = body.quiet_hours or QuietHours("00:00", "00:00")
        chosen = Choices(body.time_zone, _minutes(quiet.begins), _minutes(quiet.ends))
        await self._store.put_choices(*self._key(request, user), chosen)
        return _choices_body(chosen)

    @operation("GET /v1/push/key")
    async def public_key(self, request: Request) -> PushKey:
        """Return the public key with which browsers subscribe to Web Push, for pages that do so themselves."""
        return PushKey(self._devices.public_key(self._keys.tenant(request)))

    def _key(self, request: Request, user: str) -> tuple[str, str]:
        return self._keys.tenant(request), user


def _shown(device: Device) -> ShownDevice:
    token = f"…{device.token[-SHOWN_OF_A_TOKEN:]}"
    return ShownDevice(device.device, device.provider, token, device.created_at, device.used_at)


def _choices_body(chosen: Choices) -> PushChoices:
    if chosen.quiet_begins == chosen.quiet_ends:
        return PushChoices(chosen.zone)
    return PushChoices(chosen.zone, QuietHours(_clock(chosen.quiet_begins), _clock(chosen.quiet_ends)))


def _minutes(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"
