"""HTTP operations: methods whose signatures declare what they take and return.

    @operation("PUT /v1/rooms/{room}/members/{user}", fails=(404,))
    async def add_member(self, request: Request, room: str, user: str, body: PutMember) -> Membership:

Names in braces are ids, or values of their annotated types. They are validated before the call. `query`, `body` and
`idempotency_key` are decoded as their annotated types. The return value is encoded as JSON. The OpenAPI document is
generated from the same signature, so both always agree.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.http.request import (
    check_no_body,
    check_query,
    idempotency_key,
    json,
    path_id,
    path_value,
    read_body,
    read_query,
)
from greendot.http.scopes import OPEN
from greendot.telemetry.spans import ROOT, began, span
from greendot.telemetry.traceparent import enter

Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])
# Content of an answer: one of these types as JSON, or text of this media type. Empty: no content.
Content = tuple[Any, ...] | str
_READ = {"request", "query", "body", "idempotency_key"}


class Operation(Struct, frozen=True):
    """Contract of one HTTP operation."""

    name: str  # "GET /v1/rooms"
    about: str  # the docstring
    ids: tuple[str, ...]  # parts of the path: ids, unless they are in `others`
    others: Mapping[str, Any]  # parts of the path that are no ids: name → type
    query: type[Struct] | None
    body: tuple[type[Struct], ...]  # accepted types; empty if no body is read
    keyed: bool  # whether the operation takes an Idempotency-Key
    answers: Mapping[int, Content]
    fails: frozenset[int]  # statuses beyond those that every operation may fail with

    @property
    def method(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.name.partition(" ")[2]


def operation(
    name: str,
    *,
    status: int | None = None,
    fails: Sequence[int] = (),
    answers: Mapping[int, Content] | None = None,
    body: tuple[type[Struct], ...] = (),
) -> Callable[[Method], Method]:
    """Mark a method as an operation.

    `status` is the status of the answer; the default is 200, or 204 for None. A method that answers in several ways, or
    reads its body itself, declares `answers` and `body` here.
    """

    def marked(method: Method) -> Method:
        hints, taken = get_type_hints(method, include_extras=True), {*inspect.signature(method).parameters} - {"self"}
        ids = tuple(re.findall(r"{(\w+)}", name))
        assert taken - _READ == {*ids}, f"{name}: {method.__qualname__} takes {sorted(taken)}"
        assert body == () or "body" not in taken, f"{name}: the body is named twice"
        given = _answer(hints["return"], status) if answers is None else answers
        bodies = (hints["body"],) if "body" in taken else body
        assert all(kind.__struct_config__.forbid_unknown_fields for kind in bodies), f"{name}: its body is no Body"
        method.operation = Operation(  # type: ignore[attr-defined]
            name=name,
            about=inspect.getdoc(method) or "",
            ids=ids,
            others={part: hints[part] for part in ids if hints[part] is not str},
            query=hints.get("query"),
            body=bodies,
            keyed="idempotency_key" in taken,
            answers=given,
            fails=frozenset(fails),
        )
        return method

    return marked


def operations_of(kind: type) -> list[Operation]:
    """Return all operations of a class, in order of definition."""
    return [member.operation for member in vars(kind).values() if hasattr(member, "operation")]


def routes_of(instance: object) -> list[Route]:
    """Return the routes of all operations of an object."""
    methods = (getattr(instance, name) for name, member in vars(type(instance)).items() if hasattr(member, "operation"))
    return [_route(method) for method in methods]


def _answer(returned: Any, status: int | None) -> Mapping[int, Content]:
    if returned is type(None):
        return {status or 204: ()}
    assert returned is not Response, "an operation that makes its answers by itself says which there are"
    return {status or 200: (returned,)}


def _route(method: Callable[..., Awaitable[Any]]) -> Route:
    it: Operation = method.operation  # type: ignore[attr-defined]
    reads_body, status = "body" in method.__annotations__, next(iter(it.answers))
    # Probes, scrapers and browsers add queries of their own to the routes without a key.
    is_strict = it.name not in OPEN

    async def serve(request: Request) -> Response:
        trace = began(request.headers.get("traceparent"))
        if trace is None:
            # A pipelined request inherits the context of the request before it.
            enter(None)
            return await answered(request)
        if trace is not ROOT:
            # Never left: each request is its own task, and logs of its errors belong to the trace.
            enter(trace)
        with span(it.name, trace):
            return await answered(request)

    async def answered(request: Request) -> Response:
        given: dict[str, Any] = {
            name: path_value(request, name, it.others[name]) if name in it.others else path_id(request, name)
            for name in it.ids
        }
        if it.query is not None:
            given["query"] = read_query(request, it.query)
        elif is_strict:
            check_query(request, ())
        if it.keyed:
            given["idempotency_key"] = idempotency_key(request)
        if reads_body:
            given["body"] = await read_body(request, it.body[0])
        elif is_strict and not it.body:
            await check_no_body(request)
        answer = await method(request, **given)
        if isinstance(answer, Response):
            return answer
        return Response(status_code=status) if answer is None else json(answer, status)

    return Route(it.path, serve, methods=[it.method])
