"""Decoding of API requests: ids in the path, query, body."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
import msgspec.inspect
from msgspec import Meta, Raw, Struct, UnsetType
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from greendot.http.problem import Problem
from greendot.ids import ID_RULE, valid_id
from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.commands import Id, Limit
from greendot.protocol.decoding import MAX_DEPTH, TOO_DEEP, VAST_NUMBER, has_vast_number, is_too_deep
from greendot.protocol.decoding import decode as decode_json
from greendot.protocol.fields import about
from greendot.protocol.mistakes import explained, struct_at
from greendot.protocol.spelling import unknown

MAX_BODY = 2 * 1024 * 1024  # enough for 10,000 ids of maximum length

T = TypeVar("T")
Query = TypeVar("Query", bound=Struct)
Position = Annotated[int, Meta(ge=0, le=2**31)]  # number in a stream; 0 is before the first
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$(\S*)`)?", re.DOTALL)  # an error of msgspec


class Body(Struct, forbid_unknown_fields=True):
    """Base of request bodies, and of objects in them: an unknown field is refused, not ignored."""


class Page(Struct, frozen=True):
    """Query of a list in order of ids: entries after an id."""

    after: Annotated[Id | None, about("Last id of the previous page; without it, the first page.")] = None
    limit: Annotated[int, Meta(ge=1, le=1_000), about("Maximum number of entries in the page.")] = 100


class Span(Struct, frozen=True):
    """Query of a list in order of numbers: entries after or before a number, or the newest without either."""

    after: Annotated[Position | None, about("Return the oldest entries after this number.")] = None
    before: Annotated[
        Position | None, about("Return the newest entries before this number; without a bound, the newest of all.")
    ] = None
    limit: Annotated[Limit, about("Maximum number of entries in the page.")] = 50

    def __post_init__(self) -> None:
        if self.after is not None and self.before is not None:
            raise ValueError("give at most one of `after` and `before`")


def path_id(request: Request, name: str) -> str:
    """Return an id from the path. Raise Problem (400) if it is not valid."""
    value = str(request.path_params[name])
    if not valid_id(value):
        raise Problem(400, f"{value[:64]!r} is not a valid id: {ID_RULE}", code="bad_field")
    return value


def path_value(request: Request, name: str, kind: Any) -> Any:
    """Return a part of the path that is no id, as `kind`. Raise Problem (400) if it is wrong."""
    text = str(request.path_params[name])
    try:
        return msgspec.convert(_number(text) if _is_number(msgspec.inspect.type_info(kind)) else text, kind)
    except msgspec.ValidationError as error:
        raise Problem(400, f"{explained(error, kind)} - at `{name}` of the path", code="bad_field") from None


def _number(text: str) -> str | int:
    """Return plain digits as a number, and other text unchanged."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text


async def read_body(request: Request, kind: type[T]) -> T:
    """Return the JSON body decoded as `kind`. Raise Problem if it is too large or wrong."""
    return decode(await read_text(request), kind)


async def read_text(request: Request, most: int = MAX_BODY) -> str:
    """Return the body, or `{}` if it is empty. Raise Problem (413) as soon as more than `most` bytes have arrived."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise Problem(413, f"the request body may have at most {most} bytes")
    except ClientDisconnect:
        raise _cut_off() from None
    try:
        # msgspec does not validate raw JSON that it forwards, and a frame that is not UTF-8 breaks a client.
        return body.decode() or "{}"
    except UnicodeError:
        raise _not_json() from None


def decode(text: str | Raw, kind: type[T], within: str = "$") -> T:
    """Decode JSON as `kind`. Raise Problem (400), which locates the mistake by its path below `within`."""
    try:
        return decode_json(text, kind)
    except msgspec.ValidationError as error:
        if found := _UNKNOWN.fullmatch(str(error)):
            name, below = found[1], found[2] or ""
            at = f"{within}{below}.".removeprefix("$").removeprefix(".")
            detail = unknown("field", name, _fields_at(kind, below), at)
        else:
            detail = explained(error, kind)
            detail = detail if "`$" in detail or within == "$" else f"{detail} - at `$`"
            detail = detail.replace("`$", f"`{within}").replace("`$.", "`")
        raise Problem(400, detail, code="bad_field") from None
    except msgspec.DecodeError as error:
        if str(error) == TOO_DEEP:
            raise Problem(400, "the request body is nested too deeply", code="bad_frame") from None
        raise _not_json() from None


def _fields_at(kind: Any, path: str) -> list[str]:
    """Return the fields of the object at `path` in a body of this type; none if there is no such object."""
    found = struct_at(kind, path)
    return [field.encode_name for field in found.fields] if found else []


def _not_json() -> Problem:
    return Problem(400, "the request body is not valid JSON", code="bad_frame")


def read_query(request: Request, kind: type[Query]) -> Query:
    """Return the query string decoded as `kind`. Numbers are plain digits.

    Raise Problem (400) if a name is unknown or repeated, or a value is wrong.
    """
    check_query(request, kind.__struct_encode_fields__)
    numbers = _numbers(kind)
    given: dict[str, str | int] = dict(request.query_params)
    for name, text in request.query_params.items():
        if name in numbers:
            given[name] = _number(text)
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise Problem(400, explained(error, kind).replace("`$.", "`"), code="bad_field") from None


def check_query(request: Request, known: Collection[str]) -> None:
    """Raise Problem (400) if the query string has a name that is not `known`, or a name twice."""
    seen = set[str]()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            raise Problem(400, unknown("query parameter", name, known), code="bad_field")
        if name in seen:
            raise Problem(400, f"the query has `{name}` twice; give it once", code="bad_field")
        seen.add(name)


async def check_no_body(request: Request) -> None:
    """Raise Problem (400) if a request that takes no body has one. An empty object counts as none."""
    body = b""
    try:
        async for chunk in request.stream():
            body = b"".join((body + chunk).split())
            if body not in (b"", b"{", b"{}"):
                raise Problem(400, "this request takes no body; send it without one", code="bad_field")
    except ClientDisconnect:
        raise _cut_off() from None


def _cut_off() -> Problem:
    return Problem(400, "the connection closed before the whole body was received; send the request again")


@cache
def _numbers(kind: type) -> frozenset[str]:
    """Return the names of fields that are numbers, or optional numbers."""
    fields = msgspec.inspect.type_info(kind).fields  # type: ignore[attr-defined]
    return frozenset(field.encode_name for field in fields if _is_number(field.type))


def _is_number(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    of = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    return any(isinstance(one, msgspec.inspect.IntType) for one in of)


def idempotency_key(request: Request) -> str | None:
    """Return the Idempotency-Key header, or None without one. Raise Problem (400) if it is not a valid id."""
    key = request.headers.get("idempotency-key")
    if key is not None and not valid_id(key):
        raise Problem(400, f"Idempotency-Key is not a valid id: {ID_RULE}", code="bad_field")
    return key


def check_size(body: Raw | UnsetType) -> None:
    """Raise Problem if a message body exceeds the limits of the wire: size, nesting depth or range of numbers."""
    if not isinstance(body, Raw):
        return
    if len(bytes(body)) > MAX_FRAME:
        raise Problem(413, f"field `body` may have at most {MAX_FRAME} bytes", code="bad_field")
    if is_too_deep(bytes(body)):
        raise Problem(400, f"field `body` may be nested at most {MAX_DEPTH} levels deep", code="bad_field")
    if has_vast_number(bytes(body)):
        raise Problem(400, f"field `body` {VAST_NUMBER}", code="bad_field")


def json(data: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(data), status, media_type="application/json")
