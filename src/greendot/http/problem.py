"""Errors as RFC 9457 problem documents."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from greendot.errors import EngineUnavailable, Refused, StoreUnavailable, Unstorable
from greendot.protocol.codes import Err
from greendot.protocol.fields import about
from greendot.telemetry import log_events
from greendot.telemetry.log import log

MEDIA_TYPE = "application/problem+json"
_STATUS = {
    Err.BAD_FIELD: 400,
    Err.BAD_FRAME: 400,
    Err.NOT_A_MEMBER: 404,
    Err.NO_SUCH_ROOM: 404,
    Err.FORBIDDEN: 403,
    Err.RATE_LIMITED: 429,
    Err.UNAVAILABLE: 503,
}


class Problem(Exception):
    """Failure answer of an HTTP operation. `detail` is the remedy."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str | None = None,
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code
        self.retry_after_s = retry_after_s
        self.headers = headers or {}


class ProblemDocument(Struct):
    """Error of a request, as a problem document (RFC 9457). `detail` explains the error and names the remedy."""

    title: Annotated[str, about("Standard phrase of the status.")]
    status: Annotated[int, about("HTTP status of the response.")]
    detail: Annotated[str, about("Explanation of the error and its remedy, for people.")]
    code: Annotated[Err | UnsetType, about("Error code, as in error frames of the WebSocket protocol.")] = UNSET
    type: Annotated[Literal["about:blank"], about("Always `about:blank`: `status` and `code` identify the error.")] = (
        "about:blank"
    )


def response(problem: Problem) -> Response:
    code = UNSET if problem.code is None else Err(problem.code)
    body = ProblemDocument(HTTPStatus(problem.status).phrase, problem.status, problem.detail, code)
    headers = {**problem.headers}
    if problem.retry_after_s is not None:
        headers["Retry-After"] = str(problem.retry_after_s)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(body), problem.status, headers, MEDIA_TYPE)


async def on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    if log_events.REQUEST_REFUSED.is_wanted:
        # Log neither the path nor the detail: both quote the request.
        log(log_events.REQUEST_REFUSED, method=request.method, route=_asked(request), status=error.status)
    return response(error)


async def on_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    status, wait_ms = _STATUS.get(Err(error.code), 400), error.retry_in_ms
    wait_s = None if wait_ms is None else ceil(wait_ms / 1000)
    return response(Problem(status, error.message, code=error.code, retry_after_s=wait_s))


async def on_unavailable(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineUnavailable | StoreUnavailable)
    return response(
        Problem(
            503,
            "the engine, the store or a node did not answer; retry after the time in Retry-After",
            code=Err.UNAVAILABLE,
            retry_after_s=5,
        )
    )


async def on_unstorable(request: Request, error: Exception) -> Response:
    assert isinstance(error, Unstorable)
    return response(Problem(400, f"a value in the request cannot be stored: {error}", code=Err.BAD_FIELD))


async def on_not_found(request: Request, error: Exception) -> Response:
    return response(Problem(404, f"there is no route {request.url.path}; see /openapi.json"))


async def on_method(request: Request, error: Exception) -> Response:
    answer = response(Problem(405, f"{request.method} is not allowed on this route; see the Allow header"))
    answer.headers["Allow"] = ", ".join(sorted(_methods(request)))
    return answer


def _methods(request: Request) -> set[str]:
    """Return the methods of the request's path, which may have one route per method."""
    here = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return {method for route in here for method in route.methods or ()}


def _asked(request: Request) -> str:
    """Return the matching route with its placeholders, not the ids of the request."""
    found = (route.path for route in request.app.routes if route.matches(request.scope)[0] is Match.FULL)
    return next(found, "nothing")


async def on_failure(request: Request, error: Exception) -> Response:
    return response(Problem(500, "internal error; see the server log", code=Err.INTERNAL))
