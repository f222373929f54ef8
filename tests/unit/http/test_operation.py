"""Operations declared by a method's signature. A wrong or incomplete declaration fails when the class is defined."""

from __future__ import annotations

import pytest
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from greendot.http.operation import operation, operations_of, routes_of
from greendot.http.request import Body


class Given(Body):
    """A request body."""

    word: str


class Things:
    """A class with operations."""

    @operation("PUT /v1/things/{thing}", status=201)
    async def put(self, request: Request, thing: str, body: Given, idempotency_key: str | None) -> Given:
        """Put a thing."""
        return Given(f"{thing} {body.word}")

    @operation("DELETE /v1/things/{thing}")
    async def remove(self, request: Request, thing: str) -> None:
        """Remove a thing."""

    async def helper(self) -> None: ...


def test_what_is_taken_and_answered_is_read_from_the_signature() -> None:
    put, remove = operations_of(Things)
    assert (put.method, put.path, put.about) == ("PUT", "/v1/things/{thing}", "Put a thing.")
    assert (put.ids, put.query, put.body, put.keyed) == (("thing",), None, (Given,), True)
    assert (put.answers, remove.answers) == ({201: (Given,)}, {204: ()})
    assert [(route.path, route.methods) for route in routes_of(Things())] == [
        ("/v1/things/{thing}", {"PUT"}),
        ("/v1/things/{thing}", {"DELETE"}),
    ]


def test_a_method_that_does_not_take_what_is_in_its_path_is_refused() -> None:
    async def handler(request: Request, room: str) -> None: ...

    for path in ("/v1/things", "/v1/things/{thing}", "/v1/things/{room}/{thing}"):
        with pytest.raises(AssertionError, match="takes"):
            operation(f"GET {path}")(handler)


def test_an_operation_that_returns_a_response_must_declare_its_answers() -> None:
    async def handler(request: Request) -> Response: ...

    with pytest.raises(AssertionError, match="says which"):
        operation("GET /v1/things")(handler)
    operation("GET /v1/things", answers={200: "text/plain"})(handler)


def test_a_body_is_not_named_twice() -> None:
    async def handler(request: Request, body: Given) -> None: ...

    with pytest.raises(AssertionError, match="twice"):
        operation("POST /v1/things", body=(Given,))(handler)


def test_a_body_that_ignores_unknown_fields_is_refused() -> None:
    class Lenient(Struct):
        """A body that ignores unknown fields."""

    async def handler(request: Request, body: Lenient) -> None: ...

    handler.__annotations__["body"] = Lenient
    with pytest.raises(AssertionError, match="no Body"):
        operation("POST /v1/things")(handler)
