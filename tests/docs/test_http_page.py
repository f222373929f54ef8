"""docs/http.md and the OpenAPI document agree on fields, numbers and statuses."""

from __future__ import annotations

import re
from typing import Any

import pytest

from docs.test_documents import table
from greendot.app.http import document

DOCUMENT = document()
ROWS = {name.split("?")[0]: cells for name, cells in table("http.md", "# The HTTP API").items() if " /" in name}
every_row = pytest.mark.parametrize(("name", "cells"), ROWS.items(), ids=ROWS.keys())
# Routes whose response the page describes in another row.
AS_ELSEWHERE = {"GET /v1/users/{user}/presence", "GET /v1/rooms/{room}"}


def described(name: str) -> dict[str, Any]:
    method, path = name.split(" ")
    found: dict[str, Any] = DOCUMENT["paths"][path][method.lower()]
    return found


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][name] if name else schema
    return found


def fields(schema: dict[str, Any]) -> set[str]:
    """Return the fields of an object, or of all its variants."""
    schema = resolved(schema)
    if "anyOf" in schema and "properties" not in schema:
        return set().union(*(fields(part) for part in schema["anyOf"]))
    return {*schema.get("properties", {})}


def choices(schema: Any) -> set[str]:
    """Return the allowed words of a field, at any depth."""
    if isinstance(schema, list):
        return set().union(*map(choices, schema))
    if not isinstance(schema, dict):
        return set()
    found = {each for each in schema.get("enum", ()) if isinstance(each, str)}
    return found.union(*(choices(resolved(part) if isinstance(part, dict) else part) for part in schema.values()))


def content(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = answer.get("content", {}).get("application/json", {}).get("schema", {})
    return found


def names(cell: str) -> set[str]:
    """Return the texts in backticks; of a query, the names of its parameters."""
    found = re.findall(r"`([^`]+)`", cell)
    return {name for text in found for name in (re.findall(r"[?&](\w+)=", text) or [text])}


@every_row
def test_what_is_taken_is_the_same_on_the_page_and_in_the_document(name: str, cells: list[str]) -> None:
    found = described(name)
    given = found.get("requestBody", {"content": {"application/json": {"schema": {}}}})
    schema = given["content"]["application/json"]["schema"]
    parameters = [each for each in found["parameters"] if each["in"] != "path"]
    taken = fields(schema) | {each["name"] for each in parameters}
    assert taken <= names(cells[1])
    assert names(cells[1]) <= taken | choices(resolved(schema)) | choices(parameters)


@every_row
def test_bounds_of_numbers_are_the_same_on_the_page_and_in_the_document(name: str, cells: list[str]) -> None:
    for parameter in described(name)["parameters"]:
        if parameter["name"] == "limit":
            bounds = parameter["schema"]["minimum"], parameter["schema"]["maximum"]
            assert f"({bounds[0]} to {bounds[1]:,})" in cells[1]


@every_row
def test_what_is_answered_is_the_same_on_the_page_and_in_the_document(name: str, cells: list[str]) -> None:
    answers = described(name)["responses"]
    good = {status: answer for status, answer in answers.items() if status.startswith("2")}
    said = {*re.findall(r"(?<!\d)[2-5]\d\d(?!\d)", cells[2])}
    assert said <= answers.keys()
    assert {status for status in good if len(good) > 1 or status != "200"} <= said
    if name not in AS_ELSEWHERE:
        assert set().union(*(fields(content(answer)) for answer in good.values())) <= names(cells[2])


def test_there_is_a_row_for_every_operation_that_needs_a_key() -> None:
    needing = {
        f"{m.upper()} {p}" for p, found in DOCUMENT["paths"].items() for m, it in found.items() if it["security"]
    }
    assert ROWS.keys() == needing
