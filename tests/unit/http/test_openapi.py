"""OpenAPI document: valid, and equal to the code for every route."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from openapi_spec_validator import validate

from greendot import __version__
from greendot.app.http import KINDS, document
from greendot.auth.http import PostRevoke, TokenRoutes
from greendot.http.operation import Operation, operations_of
from greendot.http.problem import Problem
from greendot.http.request import decode
from greendot.http.scopes import NEEDED, OPEN
from greendot.testing.clock import ManualClock
from http_routes import uncalled_app
from undescribed import undescribed

DOCUMENT = document()
OPERATIONS = {operation.name: operation for kind in KINDS for operation in operations_of(kind)}
every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())


def described(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][operation.path][operation.method.lower()]
    return found


def test_it_is_a_valid_openapi_document_of_this_version() -> None:
    validate(DOCUMENT)
    assert DOCUMENT["openapi"] == "3.1.0"
    assert DOCUMENT["info"]["version"] == __version__


def test_it_has_every_route_of_the_app_and_no_other() -> None:
    app = uncalled_app()
    # Without the page, and without the files of the JavaScript client.
    served = [route for route in app.routes if not route.path.startswith(("/docs", "/greendot"))]
    routes = {f"{method} {route.path}" for route in served for method in route.methods - {"HEAD"}}
    named = {f"{method.upper()} {path}" for path, found in DOCUMENT["paths"].items() for method in found}
    assert named == routes == OPERATIONS.keys() == OPEN | NEEDED.keys()


@every_operation
def test_an_operation_needs_the_scope_that_is_asked_for(operation: Operation) -> None:
    scope = NEEDED.get(operation.name)
    assert described(operation)["security"] == ([{"key": [scope]}] if scope else [])
    assert ("401" in described(operation)["responses"]) == (scope is not None)


@every_operation
def test_an_operation_has_a_summary_of_one_sentence(operation: Operation) -> None:
    assert 5 < len(described(operation)["summary"]) < 120
    assert described(operation)["summary"].endswith(".")


def test_every_operation_parameter_schema_and_field_has_a_description() -> None:
    assert undescribed(DOCUMENT) == []


def test_a_parameter_or_field_without_a_description_is_found() -> None:
    silent = document()
    del silent["components"]["schemas"]["PutRoom"]["properties"]["open"]["description"]
    (parameter,) = silent["paths"]["/v1/rooms/{room}"]["get"]["parameters"]
    del parameter["description"]
    assert undescribed(silent) == ["GET /v1/rooms/{room} room", "PutRoom.open"]


def test_no_two_operations_have_the_same_name() -> None:
    names = [described(operation)["operationId"] for operation in OPERATIONS.values()]
    assert len(names) == len({*names})


def test_a_body_whose_fields_may_all_be_left_out_may_be_left_out() -> None:
    required = {
        name: described(it)["requestBody"]["required"]
        for name, it in OPERATIONS.items()
        if "requestBody" in described(it)
    }
    assert [name for name, is_required in required.items() if not is_required] == [
        "PUT /v1/users/{user}/status",
        "PUT /v1/users/{user}/info",
        "PUT /v1/users/{user}/contacts/{other}",
        "PUT /v1/users/{user}/push",
        "PUT /v1/rooms/{room}",
        "PUT /v1/rooms/{room}/members/{user}",
        "PUT /v1/rooms/{room}/mutes/{user}",
        "PUT /v1/rooms/{room}/bans/{user}",
        "PUT /v1/mutes/{user}",
        "PUT /v1/bans/{user}",
    ]


def test_patterns_are_such_as_every_language_reads() -> None:
    (parameter,) = described(OPERATIONS["GET /v1/rooms/{room}"])["parameters"]
    assert parameter["schema"]["pattern"] == "^[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127}$"
    assert r"\Z" not in str(DOCUMENT)


def test_a_query_declares_its_bounds_and_has_no_null() -> None:
    found = {each["name"]: each["schema"] for each in described(OPERATIONS["GET /v1/users/{user}/inbox"])["parameters"]}
    assert found["limit"] == {"type": "integer", "minimum": 1, "maximum": 300, "default": 50}
    assert found["after"] == found["before"] == {"type": "integer", "minimum": 0, "maximum": 2**31}
    assert {*found["filter"]["enum"]} == {"all", "unread", "unseen", "archived"}


def objects(schema: Any) -> set[str]:
    """Return the names of all objects that a schema contains, directly or through others."""
    found, waiting = set[str](), [schema]
    while waiting:
        at = waiting.pop()
        if isinstance(at, dict):
            name = str(at.get("$ref", "")).rpartition("/")[2]
            if name and name not in found:
                found.add(name)
                waiting.append(DOCUMENT["components"]["schemas"][name])
            waiting += at.values()
        elif isinstance(at, list):
            waiting += at
    return {name for name in found if "properties" in DOCUMENT["components"]["schemas"][name]}


def test_bodies_of_requests_have_no_other_fields_and_answers_may_get_more() -> None:
    is_closed = {
        name: schema.get("additionalProperties") is False for name, schema in DOCUMENT["components"]["schemas"].items()
    }
    sent, got = set[str](), set[str]()
    for operation in OPERATIONS.values():
        sent |= objects(described(operation).get("requestBody"))
        got |= objects([answer.get("content") for answer in described(operation)["responses"].values()])
    assert {"PutRoom", "PostNotification", "PutQuietHours"} <= sent
    assert {name for name in sent if not is_closed[name]} == set()
    assert {name for name in got if is_closed[name]} == set()


@every_operation
def test_a_request_with_a_key_may_fail_with_a_problem_for_its_names(operation: Operation) -> None:
    refused = described(operation)["responses"]["400"]["$ref"].rpartition("/")[2]
    is_text = operation.name in OPEN and 400 not in operation.fails
    assert refused == ("Text400" if is_text else "Problem400")


# --- rules between fields: the document and the code agree ---


def validator(name: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]})


FIELDS = {"jti": "t", "session": "s", "user": "u", "before": ManualClock().now_ms(), "expires_at": 4_000_000_000_000}
CHOICES = [dict(chosen) for count in range(6) for chosen in combinations(FIELDS.items(), count)]


class Revoking:
    def expires_at(self, before: int) -> int:
        return before + 1_000


@pytest.mark.parametrize("null", [False, True], ids=["left out", "null"])
@pytest.mark.parametrize("body", CHOICES, ids=lambda body: "+".join(body) or "nothing")
def test_what_can_be_revoked_together_is_the_same_in_the_document_and_in_the_code(
    body: dict[str, Any], null: bool
) -> None:
    body = dict.fromkeys(FIELDS) | body if null else body
    routes = TokenRoutes(None, ManualClock(), Revoking())  # type: ignore[arg-type]  # the keys are not used
    try:
        routes._revocation("default", decode(msgspec.json.encode(body).decode(), PostRevoke))
        taken = True
    except Problem:
        taken = False
    assert validator("PostRevoke").is_valid(body) == taken


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        ({}, False),
        ({"room": "r"}, True),
        ({"user": "u"}, True),
        ({"room": "r", "user": None}, True),
        ({"room": None, "user": None}, False),
        ({"room": "r", "user": "u"}, False),
    ],
)
def test_a_signal_is_for_a_room_or_a_user(body: dict[str, Any], fits: bool) -> None:
    assert validator("PostSignal").is_valid({"kind": "wave"} | body) == fits


def test_a_notification_ends_at_a_moment_or_after_a_time() -> None:
    notification = {"user": "u", "kind": "k", "body": 1}
    for fits, fields in [
        (True, {}),
        (True, {"ttl_s": 1}),
        (True, {"expires_at": 1}),
        (False, {"ttl_s": 1, "expires_at": 1}),
    ]:
        assert validator("PostNotification").is_valid(notification | fields) == fits
