"""HTTP API of Pusher Channels: events, channels and users of an app. Requests are signed (`signature_model`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.compat.connection import NodeServices
from greendot.compat.pusher.apps import PusherApp, PusherApps
from greendot.compat.pusher.channel_model import ChannelName, channel_of, parse_channel, room_id
from greendot.compat.pusher.dialect import PROTECTED
from greendot.compat.pusher.publisher import EventPublisher
from greendot.compat.pusher.signature_model import SAME_S, SignedRequest, WrongRequest
from greendot.ids import valid_id
from greendot.protocol.cluster import ListenedQuery
from greendot.protocol.codes import Close
from greendot.protocol.decoding import decode

MOST_CHANNELS = 100  # of one event
MOST_EVENTS = 10  # in one batch
MOST_BODY = 1024 * 1024  # bytes
SKEW_S = 60  # greatest difference between the clocks of two nodes
MOST_USERS = 3_000  # users in the list of a channel's users
MOST_COUNTED = 500  # channels whose users one request counts: each is a read of the engine
TERMINATED = "terminated by the app"  # reason of the close

Name = Annotated[str, Meta(min_length=1, max_length=200)]
SocketId = Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]+\Z", max_length=64)]


class PostEvent(Struct, frozen=True):
    """Event for one or several channels."""

    name: Name
    data: str
    channels: Annotated[list[str], Meta(max_length=MOST_CHANNELS)] = []
    channel: str = ""
    socket_id: SocketId | None = None
    info: str = ""


class PostBatch(Struct, frozen=True):
    """Several events, each for one channel."""

    batch: Annotated[list[PostEvent], Meta(max_length=MOST_EVENTS)]


class ApiError(Exception):
    """Answer to a request that is refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class SignedCall(NamedTuple):
    """Parameters of a request that the app has signed."""

    path: Mapping[str, Any]
    query: Mapping[str, str]  # by name in lower case


Endpoint = Callable[[PusherApp, SignedCall, bytes], Awaitable[Any]]


class PusherRoutes:
    """Routes of the HTTP API for all apps."""

    def __init__(self, services: NodeServices, apps: PusherApps, publisher: EventPublisher) -> None:
        self._services = services
        self._apps = apps
        self._publisher = publisher

    def routes(self) -> list[Route]:
        base = "/apps/{app_id}"
        return [
            self._route("POST", f"{base}/events", self._events),
            self._route("POST", f"{base}/batch_events", self._batch),
            self._route("GET", f"{base}/channels", self._channels),
            self._route("GET", f"{base}/channels/{{channel}}", self._channel),
            self._route("GET", f"{base}/channels/{{channel}}/users", self._users),
            self._route("POST", f"{base}/users/{{user}}/terminate_connections", self._terminate),
            # The library for Python leaves the app out.
            self._route("POST", "/users/{user}/terminate_connections", self._terminate),
        ]

    def _route(self, method: str, path: str, endpoint: Endpoint) -> Route:
        async def serve(request: Request) -> Response:
            try:
                app, signed = self._signed(request)  # before the body is read, which has no limit of rate
                self._services.rate_limits.app_request(app.tenant, f"pusher:{app.key}")
                body = await _read(request)
                await self._check_body(app, request, signed, body)
                return _json(200, await endpoint(app, SignedCall(request.path_params, signed.values), body))
            except ApiError as error:
                return _json(error.status, {"error": str(error)})

        return Route(path, serve, methods=[method])

    def _signed(self, request: Request) -> tuple[PusherApp, SignedRequest]:
        """Return the app of a request, and what it has signed. Raise ApiError if the signature is wrong."""
        try:
            path = request.scope.get("raw_path") or request.url.path.encode()
            signed = SignedRequest(request.method, path.decode("latin-1"), request.scope["query_string"])
            app_id = request.path_params.get("app_id")
            app = self._apps.by_key(signed.key) if app_id is None else self._apps.by_id(app_id)
            if app is None:
                raise ApiError(404 if app_id is not None else 401, "there is no such app; check app_id and key")
            if signed.key != app.key:
                raise ApiError(401, "auth_key is not the key of this app")
            signed.check(app.secrets, self._services.clock.now_ms() // 1000)
        except WrongRequest as error:
            raise ApiError(401, str(error)) from None
        return app, signed

    async def _check_body(self, app: PusherApp, request: Request, signed: SignedRequest, body: bytes) -> None:
        """Raise ApiError if the app has not signed the body, or if the request is a replay.

        Equal requests within one second have the same signature, and each is accepted. An equal request that comes
        later is a replay, also if another node received the first one.
        """
        try:
            signed.check_body(body)
        except WrongRequest as error:
            raise ApiError(401, str(error)) from None
        if request.method != "POST":
            return
        keep_s = signed.accepted_until_s + SKEW_S - self._services.clock.now_ms() // 1000
        used_ms = await self._services.engine.use(app.tenant, f"{app.key}:{signed.signature}", keep_s * 1000)
        if used_ms > SAME_S * 1000:
            raise ApiError(401, "this request was received before; sign each request anew")

    # --- events ---

    async def _events(self, app: PusherApp, request: SignedCall, body: bytes) -> Any:
        event = _decoded(body, PostEvent)
        names = event.channels or [event.channel]
        channels = self._checked(app, event, names)
        for channel in channels:
            await self._publisher.publish(app, channel, event.name, event.data, event.socket_id)
        if not event.info:
            return {}
        return {"channels": {it.name: await self._info(app, it, event.info) for it in channels}}

    async def _batch(self, app: PusherApp, request: SignedCall, body: bytes) -> Any:
        batch = _decoded(body, PostBatch).batch
        checked = [(event, self._checked(app, event, [event.channel])[0]) for event in batch]
        for event, channel in checked:
            await self._publisher.publish(app, channel, event.name, event.data, event.socket_id)
        if not any(event.info for event in batch):
            return {}
        return {"batch": [await self._info(app, channel, event.info) for event, channel in checked]}

    @staticmethod
    def _checked(app: PusherApp, event: PostEvent, names: list[str]) -> list[ChannelName]:
        """Return the channels of an event. Raise ApiError if a channel or the event is wrong."""
        if len(event.data.encode(errors="replace")) > app.event_bytes:
            raise ApiError(413, f"the data of an event may have at most {app.event_bytes} bytes")
        if event.name.startswith(PROTECTED):
            raise ApiError(400, "event names that begin with pusher: or pusher_internal: are reserved")
        return [_channel(name) for name in dict.fromkeys(names)]

    # --- channels ---

    async def _info(self, app: PusherApp, channel: ChannelName, wanted: str) -> dict[str, Any]:
        names, found = {*wanted.split(",")}, dict[str, Any]()
        if "user_count" in names and channel.kind == "presence":
            found["user_count"] = (await self._page(app, channel, 0)).total
        if "subscription_count" in names and channel.kind != "user":
            found["subscription_count"] = await self._listeners(app, channel)
        return found

    async def _page(self, app: PusherApp, channel: ChannelName, limit: int) -> Any:
        return await self._services.engine.present_page(app.tenant, channel.room, None, limit)

    async def _listeners(self, app: PusherApp, channel: ChannelName) -> int:
        found = await self._services.listened(ListenedQuery(app.tenant, [channel.room]))
        return found.get(channel.room, 0)

    async def _channels(self, app: PusherApp, request: SignedCall, body: bytes) -> Any:
        prefix = request.query.get("filter_by_prefix", "")
        wanted = {*request.query.get("info", "").split(",")} - {""}
        if "user_count" in wanted and not prefix.startswith("presence-"):
            raise ApiError(400, "info=user_count needs filter_by_prefix=presence-")
        found = await self._services.listened(ListenedQuery(app.tenant, [], room_id(prefix)))
        if "user_count" in wanted and len(found) > MOST_COUNTED:
            raise ApiError(400, f"info=user_count is for at most {MOST_COUNTED} channels; use a longer prefix")
        channels: dict[str, Any] = {}
        for room, count in sorted(found.items()):
            channel = parse_channel(channel_of(room))
            if channel is not None and channel.name.startswith(prefix):
                channels[channel.name] = {}
                if "user_count" in wanted:
                    channels[channel.name]["user_count"] = (await self._page(app, channel, 0)).total
                if "subscription_count" in wanted:
                    channels[channel.name]["subscription_count"] = count
        return {"channels": channels}

    async def _channel(self, app: PusherApp, request: SignedCall, body: bytes) -> Any:
        channel = _channel(request.path["channel"])
        wanted = request.query.get("info", "")
        if "user_count" in wanted.split(",") and channel.kind != "presence":
            raise ApiError(400, "only presence channels have a user_count")
        occupied = await self._listeners(app, channel) > 0
        return {"occupied": occupied, **await self._info(app, channel, wanted)}

    async def _users(self, app: PusherApp, request: SignedCall, body: bytes) -> Any:
        channel = _channel(request.path["channel"])
        if channel.kind != "presence":
            raise ApiError(400, "only presence channels have users")
        return {"users": [{"id": user} for user in (await self._page(app, channel, MOST_USERS)).users]}

    # --- users ---

    async def _terminate(self, app: PusherApp, request: SignedCall, body: bytes) -> Any:
        """Close all connections of a user, on all nodes."""
        user = request.path["user"]
        if not valid_id(user):
            raise ApiError(400, "this is not a valid user id")
        sessions = [its.session for its in (await self._services.sessions_of(app.tenant, user)).sessions]
        await self._services.connections.disconnect_all(sessions, Close.DISCONNECTED, TERMINATED, app.tenant)
        return {}


def _channel(name: str) -> ChannelName:
    channel = parse_channel(name)
    if channel is None:
        raise ApiError(400, f"{name[:64]!r} cannot be a channel")
    return channel


async def _read(request: Request) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BODY:
                raise ApiError(413, f"the body may have at most {MOST_BODY} bytes")
    except ClientDisconnect:
        raise ApiError(400, "the connection closed before the whole body was received") from None
    return bytes(body)


def _decoded(body: bytes, kind: type[Any]) -> Any:
    try:
        return decode(body, kind)
    except msgspec.DecodeError as error:
        raise ApiError(400, f"the body is wrong: {error}") from None


def _json(status: int, content: Any) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")
