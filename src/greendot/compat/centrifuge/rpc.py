"""RPC of Centrifuge clients: each call is a signed request to the app, whose answer is the reply.

Requests and answers have the form of Centrifugo's RPC proxy, so that an app needs no change. Calls of one connection
run one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from greendot.compat.centrifuge.codec_model import NULL, Rpc, RpcResult, compact
from greendot.compat.centrifuge.codes_model import CfErr, CfError, CfRefused, close_of_app
from greendot.compat.centrifuge.connection import CentrifugeConnection
from greendot.connect.dispatch import Dispatcher
from greendot.errors import GreendotError
from greendot.ids import TEXT_PATTERN
from greendot.node.session import Session
from greendot.protocol import commands as wire
from greendot.protocol.decoding import decode, has_vast_number, is_too_deep
from greendot.rooms.before_publish import PublishClient
from greendot.telemetry import log_events
from greendot.telemetry.log import log

MOST_WAITING = 1_000  # calls of a tenant that wait for answers; further ones are refused
MOST_REASON = 123  # bytes of a close reason (RFC 6455 5.5)

Message = Annotated[str, Meta(max_length=500, pattern=TEXT_PATTERN)]


class RpcQuestion(Struct, frozen=True):
    """Body of a request."""

    tenant: str
    client: str
    user: str
    method: str
    data: Raw
    transport: str = "websocket"
    protocol: str = "json"
    encoding: str = "json"


class AnswerResult(Struct, frozen=True):
    """Result of a call."""

    data: Raw = NULL


class AnswerError(Struct, frozen=True):
    """Error of a call, for the client."""

    code: Annotated[int, Meta(ge=1, le=65_535)]
    message: Message = ""
    temporary: bool = False


class AnswerDisconnect(Struct, frozen=True):
    """Order to close the connection instead of an answer."""

    code: Annotated[int, Meta(ge=4_000, lt=5_000)]
    reason: Message = ""


class RpcAnswer(Struct, frozen=True):
    """Body of the app's answer: one of these."""

    result: AnswerResult | None = None
    error: AnswerError | None = None
    disconnect: AnswerDisconnect | None = None


class BadAnswer(GreendotError):
    """Answer of the app that is not valid."""


class RpcProxy:
    """Calls to the apps of all tenants that have an RPC URL, for one node."""

    def __init__(self, dispatcher: Dispatcher, clients: Mapping[str, PublishClient]) -> None:
        self._dispatcher = dispatcher
        self._clients = clients  # by tenant
        self._waiting = dict.fromkeys(clients, 0)
        self._failing: set[str] = set()  # tenants whose last call failed

    async def call(self, connection: CentrifugeConnection, session: Session, asked: Rpc) -> RpcResult:
        """Return the app's result. Raise CfRefused with the app's error, or if the app does not answer."""
        tenant = session.tenant
        client = self._clients.get(tenant)
        if client is None:
            why = "this server has no RPC: set centrifuge.rpc_url, or send a request to your app"
            raise CfRefused(CfErr.NOT_AVAILABLE, why)
        self._dispatcher.admit(session, wire.RoomHistory)  # the limits of a read
        if self._waiting[tenant] >= MOST_WAITING:
            raise CfRefused(CfErr.TOO_MANY_REQUESTS, "too many calls wait for the app; try again", temporary=True)
        self._waiting[tenant] += 1
        try:
            answer = await self._ask(client, RpcQuestion(tenant, session.id, session.user, asked.method, asked.data))
        finally:
            self._waiting[tenant] -= 1
        if answer.disconnect is not None:
            given = answer.disconnect.reason.encode()[:MOST_REASON].decode(errors="ignore")
            reason = given or "disconnected by the app"
            connection.close(close_of_app(answer.disconnect.code), reason)
            raise CfRefused(CfErr.PERMISSION_DENIED, reason)
        if answer.error is not None:
            raise CfRefused.of(CfError(answer.error.code, answer.error.message, answer.error.temporary))
        return RpcResult(compact((answer.result or AnswerResult()).data))

    async def _ask(self, client: PublishClient, question: RpcQuestion) -> RpcAnswer:
        tenant = question.tenant
        try:
            answer = _checked(decode(await client.ask(msgspec.json.encode(question)), RpcAnswer))
        except (GreendotError, msgspec.MsgspecError) as error:
            if tenant not in self._failing:  # one log line for each outage
                self._failing.add(tenant)
                log(log_events.RPC_UNANSWERED, tenant=tenant, reason=error)
            why = "the app does not answer this call now; try again later"
            raise CfRefused(CfErr.INTERNAL, why, temporary=True) from None
        self._failing.discard(tenant)
        return answer

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


def _checked(answer: RpcAnswer) -> RpcAnswer:
    """Return the answer, if a client can read it. Raise BadAnswer otherwise."""
    given = [part for part in (answer.result, answer.error, answer.disconnect) if part is not None]
    if len(given) != 1:
        raise BadAnswer("the answer must have one of `result`, `error` and `disconnect`")
    if answer.result is not None:
        data = bytes(answer.result.data)
        if is_too_deep(data) or has_vast_number(data):
            raise BadAnswer("the data of the answer is nested too deeply, or has a number that is too large")
    return answer
