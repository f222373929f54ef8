"""Routes of event streams: the stream itself, and commands for it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct
from starlette.requests import Request
from starlette.responses import Response

from greendot.connect.event_streams import EventStreams, Post
from greendot.errors import EngineUnavailable
from greendot.http.operation import operation
from greendot.http.problem import Problem
from greendot.http.request import Body, decode, read_text
from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.codes import Err
from greendot.protocol.fields import about
from greendot.transport.event_stream import PostOutcome
from greendot.transport.event_stream_model import MAX_PADDING
from greendot.transport.ingress import IngressPolicy
from greendot.transport.request_head import joined

MOST_COMMANDS = 64  # commands in one request: the share of one connection in a turn of the event loop
MAX_POST = MAX_FRAME + 1024  # bytes of a request: one command of the largest size fits
BUSY_S = 1  # Retry-After while earlier commands of the stream wait


class PostCommands(Body):
    """Commands of a client, as it would send them on a WebSocket."""

    seq: Annotated[
        float,  # a whole number, however the client writes it
        Meta(ge=1, le=2**53 - 1, multiple_of=1),
        about("Number of this request in its stream, from 1 without gaps. A repeated number has no effect."),
    ]
    commands: Annotated[
        list[Raw], Meta(max_length=MOST_COMMANDS), about("Commands of docs/protocol.md. The first one is `hello`.")
    ]
    close: Annotated[
        Literal[1000, 1001] | None,
        about("Close the stream after the commands, with this code: 1000, or 1001 when the page is left."),
    ] = None


class StreamOptions(Struct, frozen=True):
    """Query of an event stream."""

    pad: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_PADDING)] | None,
        about("Bytes of padding behind each write, for proxies that hold a response back until a buffer is full."),
    ] = None


class EventStreamRoutes:
    """Routes of `/v1/events`."""

    def __init__(self, streams: EventStreams, ingress: IngressPolicy) -> None:
        self._streams = streams
        self._ingress = ingress

    @operation("GET /v1/events", answers={200: "text/event-stream"}, fails=(400,))
    async def events(self, request: Request, query: StreamOptions) -> Response:
        """Open an event stream as a client, where WebSockets do not pass.

        The first event names the stream. Each further event is a frame of the protocol.
        """
        # Other requests never reach this route.
        raise Problem(
            400, "an event stream is opened by GET, without a body and without an upgrade", code=Err.BAD_FIELD
        )

    @operation(
        "POST /v1/events/{stream}", answers={202: ()}, fails=(400, 403, 404, 413, 429, 503), body=(PostCommands,)
    )
    async def post(self, request: Request, stream: str) -> Response:
        """Send commands of a client to its event stream. Replies arrive on the stream.

        The stream's id authorises the request. A request whose answer was lost may be repeated with the same `seq`.
        """
        headers = joined(request.scope["headers"])
        peer = request.client.host if request.client is not None else ""
        if not self._ingress.allows_page(peer, headers, secure=request.url.scheme == "https"):
            raise Problem(403, "origin not allowed; list it in door.origins", code=Err.FORBIDDEN)
        origin = request.headers.get("origin")
        cors = {} if origin is None else {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
        try:
            if not self._streams.may_exist(stream):  # before the body is read: strangers can guess ids
                raise _unknown()
            await self._post(stream, decode(await read_text(request, MAX_POST), PostCommands))
        except Problem as problem:
            problem.headers = {**problem.headers, **cors}
            raise
        return Response(status_code=202, headers=cors)

    async def _post(self, stream: str, body: PostCommands) -> None:
        """Pass the commands on. Raise Problem unless they were taken."""
        post = Post(int(body.seq), [bytes(command).decode() for command in body.commands], body.close)
        try:
            outcome = await self._streams.post(stream, post)
        except EngineUnavailable:
            raise Problem(
                503,
                "the node of this stream did not answer; repeat the request with the same seq",
                code=Err.UNAVAILABLE,
                retry_after_s=BUSY_S,
            ) from None
        match outcome:
            case PostOutcome.UNKNOWN:
                raise _unknown()
            case PostOutcome.OUT_OF_ORDER:
                raise Problem(
                    400, "a request with a smaller seq is missing; send requests in order", code=Err.BAD_FIELD
                )
            case PostOutcome.BUSY:
                raise Problem(
                    429,
                    "earlier commands of this stream wait; repeat the request with the same seq",
                    code=Err.RATE_LIMITED,
                    retry_after_s=BUSY_S,
                )


def _unknown() -> Problem:
    return Problem(404, "there is no such stream, or it has ended; open another and resume the session")
