"""OpenAPI 3.1 document of the HTTP API, generated from operations and their types."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from greendot import __version__
from greendot.auth.model import SCOPES
from greendot.http import problem
from greendot.http.operation import Content, Operation
from greendot.http.schema import Json, ecma
from greendot.http.scopes import NEEDED, OPEN, UNCOUNTED
from greendot.protocol.commands import REACTION, Id

ABOUT = """\
This API is for app backends. An API key belongs to a tenant and has scopes. Each operation names the scope that it
requires; `admin` includes all scopes except `operator`. Times are milliseconds UTC. The server refuses unknown fields
and query parameters. Answers may get new fields in later versions; ignore fields that you do not know. An error is a
problem document (RFC 9457), and its `detail` names the remedy. Status 500 is an internal error of the server. A request
that is refused before it reaches an operation is answered in plain text.
"""
AT_THE_DOOR = {400, 403, 408, 429, 431}  # statuses that any request may get, in plain text
OF_KEYS = {401, 403, 503}  # statuses of key checks, which read the store
MEANING = {
    400: "The request is malformed, or a name or value in it is invalid. Correct the request before you send it again.",
    401: "The request has no API key, or the key is unknown, expired or revoked.",
    403: "The key lacks the required scope, or the server does not serve the request's host name.",
    404: "The room, message, session, stream or device in the path does not exist.",
    408: "The request did not arrive within the time limit.",
    409: "A deleted room of this name is being removed. Send the request again after the time in `Retry-After`.",
    413: "The request body is larger than the limit.",
    426: "This route accepts WebSocket connections only.",
    429: "A rate limit is exceeded and the request had no effect. Retry after the time in `Retry-After`.",
    431: "The request headers are larger than the limit.",
    503: "The server cannot execute the request now, or a node has not confirmed it. Send the request again.",
}
# Ids and other parts of the path.
PATH_IDS = {
    "device": "Name of the device.",
    "other": "Id of the other user.",
    "reaction": REACTION,
    "room": "Id of the room.",
    "seq": "Number of the message.",
    "session": "Id of the session.",
    "stream": "Id of the event stream, from its first event.",
    "user": "Id of the user.",
}
_TEXT: Json = {"text/plain": {"schema": {"type": "string"}}}
_RETRY: Json = {
    "description": "Time to wait before the next request, in seconds.",
    "schema": {"type": "integer", "minimum": 0},
}
_HEADERS: dict[int, Json] = {
    401: {
        "headers": {
            "WWW-Authenticate": {
                "description": "Authentication scheme that the server requires.",
                "schema": {"const": "Bearer"},
            }
        }
    },
    409: {"headers": {"Retry-After": _RETRY}},
    429: {"headers": {"Retry-After": _RETRY}},
    503: {"headers": {"Retry-After": _RETRY}},
}


def document(operations: Iterable[Operation]) -> Json:
    """Return the OpenAPI document: all operations and their types."""
    operations = [*operations]
    schemas = _Schemas(operations)
    paths: dict[str, Json] = {}
    for it in operations:
        paths.setdefault(it.path, {})[it.method.lower()] = _operation(it, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Greendot",
            "version": __version__,
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": dict(sorted(schemas.failures.items())),
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": f"API key. A tenant's key has scopes: {', '.join(SCOPES)}. "
                    "An operator's key belongs to no tenant and has the scope operator.",
                }
            },
        },
    }


class _Schemas:
    """JSON Schemas of all types in the document."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        types = {kind: None for it in operations for kind in _types(it)}
        refs, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
        self._refs = dict(zip(types, map(ecma, refs), strict=True))
        self.components = ecma(components)
        for kind in types:
            if (rule := getattr(kind, "RULE", None)) is not None:
                self.components[kind.__name__] |= rule
        self.failures: dict[str, Json] = {}  # shared failure responses by name

    def one_of(self, kinds: Iterable[Any]) -> Json:
        found = [self._refs[kind] for kind in kinds]
        return found[0] if len(found) == 1 else {"anyOf": found}

    def failure(self, status: int, *, found: bool) -> Json:
        """Return a reference to the response for a failure.

        `found` selects a problem document of an operation. Otherwise the request fails before an operation is found.
        """
        name = f"{'Problem' if found else 'Text'}{status}"
        document = {problem.MEDIA_TYPE: {"schema": self.one_of([problem.ProblemDocument])}}
        content = (document if found else {}) | (_TEXT if status in AT_THE_DOOR else {})
        self.failures[name] = {"description": MEANING[status], "content": content} | _HEADERS.get(status, {})
        return {"$ref": f"#/components/responses/{name}"}

    def fields(self, kind: type[Struct]) -> Iterable[tuple[str, Json]]:
        """Return the schemas of a query's fields, which the document writes inline."""
        (ref,), components = msgspec.json.schema_components([kind])
        fields: dict[str, Json] = ecma(components[ref["$ref"].rpartition("/")[2]]["properties"])
        return fields.items()


def _types(it: Operation) -> Iterable[Any]:
    yield problem.ProblemDocument
    yield from it.body
    for content in it.answers.values():
        if not isinstance(content, str):
            yield from content


def _operation(it: Operation, schemas: _Schemas) -> Json:
    scope = NEEDED.get(it.name)
    summary, _, more = it.about.partition("\n\n")
    found: Json = {
        "operationId": _named(it),
        "summary": " ".join(summary.split()),
        "parameters": _parameters(it, schemas),
        "responses": _answers(it, schemas),
        "security": [] if scope is None else [{"key": [scope]}],
    }
    if more:
        found["description"] = " ".join(more.split())
    if it.body:
        found["requestBody"] = {
            "required": any(map(_asks_for_something, it.body)),  # otherwise an empty body means the defaults
            "content": {"application/json": {"schema": schemas.one_of(it.body)}},
        }
    return found


def _asks_for_something(kind: type[Struct]) -> bool:
    return hasattr(kind, "RULE") or any(field.required for field in msgspec.structs.fields(kind))


def _parameters(it: Operation, schemas: _Schemas) -> list[Json]:
    ids = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PATH_IDS[name],
            "schema": ecma(msgspec.json.schema(it.others[name])) if name in it.others else _ID,
        }
        for name in it.ids
    ]
    asked = [] if it.query is None else schemas.fields(it.query)
    needed = {field.encode_name for field in msgspec.structs.fields(it.query) if field.required} if it.query else set()
    queries = [_query(name, schema) | ({"required": True} if name in needed else {}) for name, schema in asked]
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Idempotency key. A repeated request with the same key writes nothing and returns the first "
        "result.",
        "schema": _ID,
    }
    return [*ids, *queries, *([key] if it.keyed else [])]


def _query(name: str, schema: Json) -> Json:
    """Return a query parameter. The description moves from the schema to the parameter, where readers expect it."""
    given = _given(schema)
    described = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": "query", **described, "schema": _without(given, "description")}


def _given(schema: Json) -> Json:
    """Return the schema without null: a query string has no null, so None means an absent parameter."""
    some = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
    return some[0] if len(some) == 1 else schema


def _without(schema: Json, name: str) -> Json:
    return {key: value for key, value in schema.items() if key != name}


def _answers(it: Operation, schemas: _Schemas) -> dict[str, Json]:
    problems = it.fails | ({400} if it.name not in OPEN else set())
    problems |= {413} if it.body else set()
    if it.name in NEEDED:
        problems |= OF_KEYS if it.name in UNCOUNTED else OF_KEYS | {429}
    answers = {status: _answer(status, content, schemas) for status, content in it.answers.items()}
    for status in sorted((problems | AT_THE_DOOR) - answers.keys()):
        answers[status] = schemas.failure(status, found=status in problems)
    return {str(status): answer for status, answer in answers.items()}


def _answer(status: int, content: Content, schemas: _Schemas) -> Json:
    answer: Json = {"description": _about(status, content)}
    if isinstance(content, str):
        answer["content"] = {content: {"schema": {"type": "string"}}}
    elif content:
        answer["content"] = {"application/json": {"schema": schemas.one_of(content)}}
    return answer


def _about(status: int, content: Content) -> str:
    """Return the first sentences of the answer's types, or the phrase of the status if it has no struct."""
    kinds = content if isinstance(content, tuple) else ()
    summaries = [inspect.getdoc(kind) or "" for kind in kinds if isinstance(kind, type) and issubclass(kind, Struct)]
    found = [" ".join(text.partition("\n\n")[0].split()) for text in summaries]
    return " Or: ".join(found) or f"{HTTPStatus(status).phrase}."


def _named(it: Operation) -> str:
    """Return an operation id for client generators, such as put_rooms_room_members_user."""
    words = re.findall(r"\w+", it.path.removeprefix("/v1"))
    return "_".join([it.method.lower(), *words])


_ID: Json = ecma(msgspec.json.schema(Id))
