"""What can be asked over HTTP. An operation is a method that says in its signature what it takes and what it answers.

    @operation("PUT /v1/rooms/{room}/members/{user}", fails=(404,))
    async def add_member(self, request: Request, room: str, user: str, body: PutMember) -> Membership:

What stands in braces is an id and is checked before the method is called; `query`, `body` and `idempotency_key` are
read as the types they are annotated with; what is returned is answered as JSON. The OpenAPI document is made from the
same signature, so it cannot say anything else.
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

from greendot.http.request import idempotency_key, json, path_id, read_body, read_query
from greendot.telemetry.spans import ROOT, began, span
from greendot.telemetry.traceparent import enter

Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])
# What an answer has in it: one of these types as JSON, or text of this media type; nothing at all if it is empty.
Content = tuple[Any, ...] | str
_READ = {"request", "query", "body", "idempotency_key"}


class Operation(Struct, frozen=True):
    """One thing that can be asked for."""

    name: str  # "GET /v1/rooms"
    about: str  # what it does: the docstring
    ids: tuple[str, ...]  # in the path
    query: type[Struct] | None
    body: tuple[type[Struct], ...]  # one of these; none if no body is read
    keyed: bool  # whether it takes an Idempotency-Key
    answers: Mapping[int, Content]
    fails: frozenset[int]  # with these beside what every operation may fail with

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
    """Mark a method as one. `status` is of the answer, if it is not 200, or 204 for nothing. A method that answers in
    several ways, or reads its body by itself, names the `answers` and the `body` here."""

    def marked(method: Method) -> Method:
        hints, taken = get_type_hints(method, include_extras=True), {*inspect.signature(method).parameters} - {"self"}
        ids = tuple(re.findall(r"{(\w+)}", name))
        assert taken - _READ == {*ids}, f"{name}: {method.__qualname__} takes {sorted(taken)}"
        assert body == () or "body" not in taken, f"{name}: the body is named twice"
        given = _answer(hints["return"], status) if answers is None else answers
        method.operation = Operation(  # type: ignore[attr-defined]
            name=name,
            about=inspect.getdoc(method) or "",
            ids=ids,
            query=hints.get("query"),
            body=(hints["body"],) if "body" in taken else body,
            keyed="idempotency_key" in taken,
            answers=given,
            fails=frozenset(fails),
        )
        return method

    return marked


def operations_of(kind: type) -> list[Operation]:
    """All of a class, in the order they are written in."""
    return [member.operation for member in vars(kind).values() if hasattr(member, "operation")]


def routes_of(instance: object) -> list[Route]:
    """All operations of an object, as they are served."""
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

    async def serve(request: Request) -> Response:
        trace = began(request.headers.get("traceparent"))
        if trace is None:
            enter(None)  # one that was sent behind another on its connection is begun in the course of that
            return await answered(request)
        if trace is not ROOT:
            enter(trace)  # and never left: a request is a task of its own, and what is said of its errors is part of it
        with span(it.name, trace):
            return await answered(request)

    async def answered(request: Request) -> Response:
        given: dict[str, Any] = {name: path_id(request, name) for name in it.ids}
        if it.query is not None:
            given["query"] = read_query(request, it.query)
        if it.keyed:
            given["idempotency_key"] = idempotency_key(request)
        if reads_body:
            given["body"] = await read_body(request, it.body[0])
        answer = await method(request, **given)
        if isinstance(answer, Response):
            return answer
        return Response(status_code=status) if answer is None else json(answer, status)

    return Route(it.path, serve, methods=[it.method])
