"""HTTP routes of Centrifugo's server API: `POST /api/{method}` with an API key in `X-API-Key`.

A request that is understood gets status 200 with a result or an error, as the libraries of Centrifugo expect.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greendot.auth.api_keys import ApiKeys
from greendot.auth.model import Caller
from greendot.compat.centrifuge.api import ServerApi
from greendot.compat.centrifuge.api_model import REQUESTS, BatchRequest
from greendot.compat.centrifuge.codes_model import CfErr, CfError, error_of
from greendot.errors import Refused
from greendot.http.problem import Problem
from greendot.http.request import json, read_text
from greendot.limits.rate_limits import RateLimits
from greendot.protocol.decoding import Json, decode

UNMETERED = ("publish", "broadcast", "unsubscribe", "disconnect")  # they have limits of their own, or remove access
AT_ONCE = 50  # commands of a parallel batch


class ApiRoutes:
    """Route of the server API."""

    def __init__(self, api: ServerApi, keys: ApiKeys, rate_limits: RateLimits) -> None:
        self._api = api
        self._keys = keys
        self._rate_limits = rate_limits

    def routes(self) -> list[Route]:
        return [Route("/api/{method}", self._serve, methods=["POST"])]

    async def _serve(self, request: Request) -> Response:
        caller = await self._caller(request)
        method = str(request.path_params["method"])
        text = await read_text(request)
        if method == "batch":
            return json(await self._batch(caller, text))
        if method not in REQUESTS:
            return Response(status_code=404)
        return json(await self._call(caller, method, text))

    async def _caller(self, request: Request) -> Caller:
        """Return the caller of the request's API key. Raise Problem (401) without a valid key."""
        key = request.headers.get("x-api-key", "")
        if not key:
            scheme, _, text = request.headers.get("authorization", "").partition(" ")
            key = text.strip() if scheme.lower() == "apikey" else ""
        caller = await self._keys.known(key) if key else None
        if caller is None:
            raise Problem(401, "the request has no valid API key; send the header X-API-Key: KEY")
        return caller

    async def _call(self, caller: Caller, method: str, text: Json) -> dict[str, Any]:
        kind, scope = REQUESTS[method]
        if not caller.may(scope) or caller.tenant is None:
            return _error(
                CfErr.PERMISSION_DENIED, f"the API key lacks the scope {scope}; use a key of a tenant with it"
            )
        try:
            body = decode(text, kind)
        except msgspec.DecodeError as error:
            return _error(CfErr.BAD_REQUEST, f"bad request: {error}".replace("`$.", "`"))
        try:
            if method not in UNMETERED:
                self._rate_limits.app_request(caller.tenant, caller.name)
        except Refused as refused:
            return {"error": error_of(refused)}
        return await self._api.call(method, caller.tenant, body)

    async def _batch(self, caller: Caller, text: str) -> dict[str, Any]:
        try:
            batch = decode(text, BatchRequest)
        except msgspec.DecodeError as error:
            return _error(CfErr.BAD_REQUEST, f"bad request: {error}".replace("`$.", "`"))
        if not batch.parallel:
            return {"replies": [await self._command(caller, command) for command in batch.commands]}
        replies: list[dict[str, Any]] = []
        for at in range(0, len(batch.commands), AT_ONCE):
            some = batch.commands[at : at + AT_ONCE]
            replies += await asyncio.gather(*(self._command(caller, command) for command in some))
        return {"replies": replies}

    async def _command(self, caller: Caller, command: dict[str, msgspec.Raw]) -> dict[str, Any]:
        """Run a command of a batch; return its result under the name of the method, or the error."""
        method = next(iter(command), "")
        if len(command) != 1 or method not in REQUESTS:
            return _error(CfErr.METHOD_NOT_FOUND, f"a command of a batch has one method of {', '.join(REQUESTS)}")
        answer = await self._call(caller, method, command[method])
        return {method: answer["result"]} if "result" in answer else answer


def _error(code: CfErr, message: str) -> dict[str, Any]:
    return {"error": CfError(int(code), message)}
