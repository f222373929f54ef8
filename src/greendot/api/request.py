"""What every API request goes through: the ids in the path, the query, the body."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Raw, UnsetType
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from greendot.api.problem import Problem
from greendot.ids import ID_RULE, valid_id
from greendot.protocol.codec import MAX_FRAME

MAX_BODY = 2 * 1024 * 1024  # 10,000 ids of the greatest length fit

T = TypeVar("T")


def path_id(request: Request, name: str) -> str:
    """An id from the path, checked."""
    value = str(request.path_params[name])
    if not valid_id(value):
        raise Problem(400, f"{value[:64]!r} is not a valid id: {ID_RULE}", code="bad_field")
    return value


async def read_body(request: Request, kind: type[T]) -> T:
    """The JSON body as `kind`."""
    return decode(await read_text(request), kind)


async def read_text(request: Request, most: int = MAX_BODY) -> str:
    """The body, an empty object if there is none. Refused before it is read whole when it is too large."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise Problem(413, f"a body may have at most {most} bytes")
    except ClientDisconnect:
        raise Problem(400, "the body ended too early") from None
    try:
        # msgspec does not look into what it passes on as it is; a client would break at a frame that is not UTF-8.
        return body.decode() or "{}"
    except UnicodeError:
        raise _not_json() from None


def decode(text: str | Raw, kind: type[T], within: str = "$") -> T:
    """JSON as `kind`; what is wrong is named from where it stands."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        said = str(error) if "`$" in str(error) or within == "$" else f"{error} - at `$`"
        raise Problem(400, said.replace("`$", f"`{within}").replace("`$.", "`"), code="bad_field") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _not_json() from None


def _not_json() -> Problem:
    return Problem(400, "the body is not JSON", code="bad_frame")


def number(request: Request, name: str, default: int, most: int) -> int:
    """A whole number from the query string, 1 to `most`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 10 or not 1 <= int(text) <= most:
        raise Problem(400, f"{name} must be a whole number from 1 to {most}", code="bad_field")
    return int(text)


def position(request: Request, name: str) -> int | None:
    """A number in a stream from the query string, 0 before the first."""
    if name not in request.query_params:
        return None
    return number(request, name, 0, 2**31) if request.query_params[name] != "0" else 0


def idempotency_key(request: Request) -> str | None:
    """The request's own key, if it has one."""
    key = request.headers.get("idempotency-key")
    if key is not None and not valid_id(key):
        raise Problem(400, f"Idempotency-Key is not a valid id: {ID_RULE}", code="bad_field")
    return key


def check_size(body: Raw | UnsetType) -> None:
    """A body goes out in a frame, and may be no larger than one that comes in."""
    if isinstance(body, Raw) and len(bytes(body)) > MAX_FRAME:
        raise Problem(413, f"a `body` may have at most {MAX_FRAME} bytes, as on the wire", code="bad_field")


def cursor(request: Request, name: str = "after") -> str | None:
    """An id from the query string to go on after."""
    value = request.query_params.get(name)
    if value is not None and not valid_id(value):
        raise Problem(400, f"{name} is not a valid id: {ID_RULE}", code="bad_field")
    return value


def json(data: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(data), status, media_type="application/json")
