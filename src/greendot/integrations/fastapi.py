"""Greendot in a FastAPI app: a router with token and webhook routes, and the SDK client for coroutines.

greendot = Greendot()  # settings from the environment
app.include_router(greendot.router(current_user), prefix="/greendot")
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response

from greendot.errors import BadWebhook, ConfigError
from greendot.integrations.webhooks import (
    DATA,
    DELIVERY_S,
    EVENT_S,
    MOST_BYTES,
    REPLAYED,
    TOO_LARGE,
    AuditCreated,
    Event,
    NotificationCreated,
    NotificationUpdated,
    ReplayStore,
    RoomChange,
    SeenIds,
    UserChange,
    typed_event,
    verified,
)
from greendot.protocol.webhooks import SIGNATURE, HookDelivery
from greendot.sdk import Server
from greendot.sdk.responses import Message
from greendot.sdk.tokens import SHORTEST

__all__ = [
    "AuditCreated",
    "Event",
    "Greendot",
    "Message",
    "NotificationCreated",
    "NotificationUpdated",
    "ReplayStore",
    "RoomChange",
    "Settings",
    "ThreadedServer",
    "UserChange",
]

MOST_THREADS = 20  # threads that wait for Greendot at once; the app's own threads stay free
ALL = "*"
_NOT_BLOCKING = {"token", "verify_webhook"}
logger = logging.getLogger("greendot.fastapi")

D = TypeVar("D")
P = ParamSpec("P")
R = TypeVar("R")
Handler = Callable[[Event[D]], Awaitable[None] | None]
Claims = Callable[[Any], Mapping[str, Any]]


@dataclass(frozen=True)
class Settings:
    """Settings of the integration. Secrets are left out of the repr."""

    url: str
    api_key: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)  # auth.secret of the server: signs tokens
    webhook_secrets: tuple[str, ...] = field(default=(), repr=False)
    token_ttl_s: float = 3600.0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Return the settings in the environment. Raise ConfigError with all mistakes.

        Variables: GREENDOT_URL, GREENDOT_API_KEY, GREENDOT_AUTH_SECRET, GREENDOT_WEBHOOKS_SECRET,
        GREENDOT_WEBHOOKS_SECRET_BEFORE. All but the first have the names of the server's variables.
        """
        secrets = (environ.get(f"GREENDOT_WEBHOOKS_SECRET{word}", "") for word in ("", "_BEFORE"))
        found = cls(
            environ.get("GREENDOT_URL", ""),
            environ.get("GREENDOT_API_KEY", ""),
            environ.get("GREENDOT_AUTH_SECRET", ""),
            tuple(each for each in secrets if each),
        )
        if mistakes := [*found.mistakes("GREENDOT_URL", "GREENDOT_AUTH_SECRET")]:
            raise ConfigError(*mistakes)
        return found

    def mistakes(self, url: str = "url", secret: str = "secret") -> Iterator[str]:  # noqa: S107  (name of a setting)
        """Yield a sentence for each mistake. No sentence shows a secret, or the URL, which may contain a password."""
        example = "the address of the Greendot server, such as http://127.0.0.1:8000"
        try:
            Server(self.url)
        except ValueError:
            fault = "is not an address" if self.url else "is not set"
            yield f"{url} {fault}: set it to {example}"
        if 0 < len(self.secret) < SHORTEST:
            yield f"{secret} has fewer than {SHORTEST} characters: set it to auth.secret of the Greendot server"
        if self.token_ttl_s <= 0:
            yield f"token_ttl_s is {self.token_ttl_s}: set it to a number of seconds above 0"


if TYPE_CHECKING:

    def _awaited(
        method: Callable[Concatenate[Server, P], R],
    ) -> Callable[Concatenate[ThreadedServer, P], Coroutine[Any, Any, R]]: ...

    def _iterated(
        method: Callable[Concatenate[Server, P], Iterator[R]],
    ) -> Callable[Concatenate[ThreadedServer, P], AsyncIterator[R]]: ...

    def _direct(method: Callable[Concatenate[Server, P], R]) -> Callable[Concatenate[ThreadedServer, P], R]: ...


class ThreadedServer:
    """SDK client for coroutines: `await server.notify(…)`. Each call runs in a thread, so the event loop stays free.

    The methods are those of `greendot.Server`. Methods that return an iterator are for `async for`. `token` and
    `verify_webhook` never block, and are called without `await`.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._limiter: CapacityLimiter | None = None

    def __repr__(self) -> str:
        return f"Threaded{self._server!r}"

    if TYPE_CHECKING:  # the parameters and results that editors and type checkers show
        presence = _awaited(Server.presence)
        online = _awaited(Server.online)
        everybody_online = _iterated(Server.everybody_online)
        sessions = _awaited(Server.sessions)
        disconnect = _awaited(Server.disconnect)
        set_status = _awaited(Server.set_status)
        info = _awaited(Server.info)
        set_info = _awaited(Server.set_info)
        remove_info = _awaited(Server.remove_info)
        presence_mode = _awaited(Server.presence_mode)
        set_presence_mode = _awaited(Server.set_presence_mode)
        add_contact = _awaited(Server.add_contact)
        remove_contact = _awaited(Server.remove_contact)
        revoke_user = _awaited(Server.revoke_user)
        revoke_token = _awaited(Server.revoke_token)
        revoke_session = _awaited(Server.revoke_session)
        revoke_all = _awaited(Server.revoke_all)
        put_room = _awaited(Server.put_room)
        room = _awaited(Server.room)
        rooms = _awaited(Server.rooms)
        every_room = _iterated(Server.every_room)
        members = _awaited(Server.members)
        every_member = _iterated(Server.every_member)
        add_member = _awaited(Server.add_member)
        remove_member = _awaited(Server.remove_member)
        present = _awaited(Server.present)
        receipts = _awaited(Server.receipts)
        readers = _awaited(Server.readers)
        typing = _awaited(Server.typing)
        send = _awaited(Server.send)
        react = _awaited(Server.react)
        unreact = _awaited(Server.unreact)
        messages = _awaited(Server.messages)
        every_message = _iterated(Server.every_message)
        signal_room = _awaited(Server.signal_room)
        signal_user = _awaited(Server.signal_user)
        notify = _awaited(Server.notify)
        notify_many = _awaited(Server.notify_many)
        inbox = _awaited(Server.inbox)
        edit_message = _awaited(Server.edit_message)
        delete_message = _awaited(Server.delete_message)
        delete_room = _awaited(Server.delete_room)
        archive_room = _awaited(Server.archive_room)
        set_slow_mode = _awaited(Server.set_slow_mode)
        mute = _awaited(Server.mute)
        unmute = _awaited(Server.unmute)
        ban = _awaited(Server.ban)
        unban = _awaited(Server.unban)
        mutes = _iterated(Server.mutes)
        bans = _iterated(Server.bans)
        audit = _awaited(Server.audit)
        every_audit_entry = _iterated(Server.every_audit_entry)
        close = _awaited(Server.close)
        token = _direct(Server.token)
        verify_webhook = _direct(Server.verify_webhook)
    else:

        def __getattr__(self, name: str) -> Any:
            method = getattr(self._server, name)
            if name in _NOT_BLOCKING or not callable(method):
                return method
            if "Iterator[" in str(inspect.signature(method).return_annotation):
                return partial(self._iterate, method)
            return partial(self._run, method)

    async def _run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._limiter is None:
            self._limiter = CapacityLimiter(MOST_THREADS)
        return await to_thread.run_sync(partial(call, *args, **kwargs), limiter=self._limiter)

    async def _iterate(self, call: Callable[..., Iterator[Any]], *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Yield the items of an iterator, each of which may need a request."""
        items = iter(await self._run(call, *args, **kwargs))
        end = object()
        while (item := await self._run(next, items, end)) is not end:
            yield item


class Greendot:
    """Greendot server of a FastAPI app, with its settings, its routes and the handlers of its webhooks.

    `replays` remembers webhooks for all processes of the app. By default each process remembers its own.
    """

    def __init__(self, settings: Settings | None = None, *, replays: ReplayStore | None = None) -> None:
        if settings is not None and (mistakes := [*settings.mistakes()]):
            raise ConfigError(*mistakes)
        self.settings = Settings.from_environment() if settings is None else settings
        self.server = Server(self.settings.url, self.settings.api_key, secret=self.settings.secret)
        self._threaded = ThreadedServer(self.server)
        self._handlers: dict[str, list[Handler[Any]]] = {}
        self._own, self._shared = SeenIds(), replays

    async def client(self) -> ThreadedServer:
        """Return the SDK client, as a dependency: `Annotated[ThreadedServer, Depends(greendot.client)]`."""
        return self._threaded

    # --- handlers ---

    @overload
    def on(
        self, event_type: Literal["user.online", "user.offline"]
    ) -> Callable[[Handler[UserChange]], Handler[UserChange]]: ...
    @overload
    def on(
        self, event_type: Literal["room.occupied", "room.vacated"]
    ) -> Callable[[Handler[RoomChange]], Handler[RoomChange]]: ...
    @overload
    def on(self, event_type: Literal["room.message"]) -> Callable[[Handler[Message]], Handler[Message]]: ...
    @overload
    def on(
        self, event_type: Literal["notification.created"]
    ) -> Callable[[Handler[NotificationCreated]], Handler[NotificationCreated]]: ...
    @overload
    def on(
        self, event_type: Literal["notification.updated"]
    ) -> Callable[[Handler[NotificationUpdated]], Handler[NotificationUpdated]]: ...
    @overload
    def on(self, event_type: Literal["audit.created"]) -> Callable[[Handler[AuditCreated]], Handler[AuditCreated]]: ...
    @overload
    def on(self, event_type: Literal["*"]) -> Callable[[Handler[Any]], Handler[Any]]: ...

    def on(self, event_type: str) -> Callable[[Handler[Any]], Handler[Any]]:
        """Register a handler for a type of webhook events, or for all types (`*`). Its argument is the event.

        A handler that is not a coroutine function runs in a thread. If a handler raises an exception, the webhook is
        answered with 500, and Greendot sends the event again.
        """
        if event_type not in DATA and event_type != ALL:
            raise ValueError(f"there are no events of type {event_type!r}; the types are {', '.join(DATA)} and *")
        if not self.settings.webhook_secrets:
            raise ConfigError(
                "there is no secret for webhooks: set webhook_secrets of Settings, or GREENDOT_WEBHOOKS_SECRET, to "
                "webhooks.secret of the Greendot server"
            )

        def register(handler: Handler[Any]) -> Handler[Any]:
            self._handlers.setdefault(event_type, []).append(handler)
            return handler

        return register

    # --- routes ---

    def router(
        self,
        current_user: Callable[..., Any] | None = None,
        *,
        user_id: Callable[[Any], object] = str,
        claims: Claims = lambda user: {},
    ) -> APIRouter:
        """Return a router with `POST /token` and, if there is a secret for webhooks, `POST /webhook`.

        `current_user` is a dependency of your app that returns the signed-in user. If no user is signed in, it raises
        an HTTPException, or returns None, which becomes 401. `user_id` and `claims` are called with this user.
        `user_id` returns the user's id, and `claims` the claims of the token, such as `name` and `rooms`.
        """
        router = APIRouter(lifespan=self._lifespan)
        if current_user is not None:
            if not self.settings.secret:
                raise ConfigError(
                    "there is no secret for tokens: set secret of Settings, or GREENDOT_AUTH_SECRET, to "
                    "auth.secret of the Greendot server"
                )
            self._add_token_route(router, current_user, user_id, claims)
        if self.settings.webhook_secrets:
            router.add_api_route("/webhook", self._webhook, methods=["POST"], include_in_schema=False)
        return router

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        yield
        self.server.close()

    def _add_token_route(
        self, router: APIRouter, current_user: Callable[..., Any], user_id: Callable[[Any], object], claims: Claims
    ) -> None:
        def token(response: Response, user: Any = Depends(current_user)) -> dict[str, str]:  # noqa: B008
            """Return a token for the signed-in user. Pages request one at the start and before each token expires."""
            if user is None:
                raise HTTPException(401, "no user is signed in; sign in first")
            response.headers["Cache-Control"] = "no-store"
            try:
                made = self.server.token(str(user_id(user)), ttl=self.settings.token_ttl_s, **dict(claims(user)))
            except ValueError as error:  # for example, user_id returned a text with a space
                logger.error("no token for the signed-in user: %s", error)
                raise HTTPException(400, str(error)) from None
            return {"token": made}

        router.add_api_route("/token", token, methods=["POST"], response_model=dict[str, str])

    async def _webhook(self, request: Request) -> Response:
        """Verify a webhook and call the handlers of its events.

        The answer is 400 for a wrong signature or a wrong time, 409 for a replay, 413 for a large body, and 500 if a
        handler failed.
        """
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                raise HTTPException(413, TOO_LARGE)
        try:
            delivery = verified(bytes(body), request.headers.get(SIGNATURE, ""), self.settings.webhook_secrets)
        except BadWebhook as error:
            raise HTTPException(400, str(error)) from None
        # Greendot gives each attempt a new id, also for events that it sends again.
        if not await self._remember(f"delivery {delivery.id}", DELIVERY_S):
            raise HTTPException(409, REPLAYED)
        if not await self._dispatch(delivery):
            raise HTTPException(500, "a handler failed; see the log of the app")
        return Response(status_code=204)

    async def _dispatch(self, delivery: HookDelivery) -> bool:
        """Call the handlers of events that were not handled before. Return whether all handlers succeeded.

        An event counts as handled if all its handlers succeeded. Otherwise Greendot sends it again.
        """
        succeeded = True
        for received in delivery.events:
            if await self._remembers(f"event {received.id}"):
                continue
            event = typed_event(received)
            handlers = [*self._handlers.get(event.type, ()), *self._handlers.get(ALL, ())]
            if all([await _handle(handler, event) for handler in handlers]):
                await self._remember(f"event {event.id}", EVENT_S)
            else:
                succeeded = False
        return succeeded

    async def _remember(self, id_: str, seconds: float) -> bool:
        """Remember an id; return whether it is new. A shared store may take long, so it is called in a thread."""
        if self._shared is None:
            return self._own.add(id_, seconds)
        return await to_thread.run_sync(self._shared.add, id_, seconds)

    async def _remembers(self, id_: str) -> bool:
        if self._shared is None:
            return id_ in self._own
        return await to_thread.run_sync(self._shared.__contains__, id_)


async def _handle(handler: Handler[Any], event: Event[Any]) -> bool:
    """Call a handler; return whether it succeeded."""
    try:
        if inspect.iscoroutinefunction(handler):
            await handler(event)
        else:
            result = await to_thread.run_sync(handler, event)
            if inspect.isawaitable(result):
                await result
    except Exception:
        logger.exception("the handler of %s failed; Greendot will send the event again", event.type)
        return False
    return True
