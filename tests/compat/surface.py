"""Public interfaces: settings, CLI commands, the HTTP API, codes, and the numbered migrations."""

from __future__ import annotations

import hashlib
from typing import Any

import click
import msgspec
from msgspec import Struct

from greendot.app.http import document
from greendot.cli import cli
from greendot.config import Settings
from greendot.protocol import commands as wire
from greendot.protocol.codes import Close, Err
from greendot.protocol.events import EVENTS
from greendot.protocol.versions import VERSIONS
from greendot.store.schema import steps

Json = dict[str, Any]


def settings(section: Struct | None = None, name: str = "") -> dict[str, Any]:
    """Return the names and defaults of the settings."""
    found: dict[str, Any] = {}
    given = Settings() if section is None else section
    for field in msgspec.structs.fields(given):
        value, full = getattr(given, field.name), f"{name}.{field.name}".lstrip(".")
        found |= settings(value, full) if isinstance(value, Struct) else {full: msgspec.to_builtins(value)}
    return found


def commands(group: click.Group | None = None, name: str = "") -> dict[str, list[str]]:
    """Return the names of CLI commands with their options and arguments."""
    found: dict[str, list[str]] = {}
    for command in (cli.all() if group is None else group.commands).values():
        full = f"{name} {command.name}".strip()
        if isinstance(command, click.Group):
            found |= commands(command, full)
        else:
            options = [word for each in command.params if isinstance(each, click.Option) for word in each.opts]
            found[full] = sorted(word for word in options if word.startswith("--"))
    return found


def http() -> Json:
    """Return for each route its parameters, whether they are required, and the fields of each response."""
    whole = document()
    return {
        f"{method.upper()} {path}": {
            "given": _given(operation, whole),
            "answers": {
                status: _fields(answer.get("content", {}).get("application/json", {}).get("schema", {}), whole)
                for status, answer in operation["responses"].items()
                if status.startswith("2")
            },
        }
        for path, operations in whole["paths"].items()
        for method, operation in operations.items()
        if method in ("get", "put", "post", "patch", "delete")
    }


def _given(operation: Json, whole: Json) -> dict[str, bool]:
    """Return the names of parameters, and whether they are required: in each variant of the body."""
    found = {f"{each['in']} {each['name']}": bool(each.get("required")) for each in operation.get("parameters", ())}
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    variants = _variants(body, whole)
    names = {name for variant in variants for name in variant.get("properties", {})}
    return found | {f"body {name}": all(name in variant.get("required", ()) for variant in variants) for name in names}


def _fields(schema: Json, whole: Json) -> list[str]:
    return sorted({name for variant in _variants(schema, whole) for name in variant.get("properties", {})})


def _variants(schema: Json, whole: Json) -> list[Json]:
    if "$ref" in schema:
        return _variants(whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]], whole)
    several = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return [found for each in several for found in _variants(each, whole)] if several else [schema]


def tables() -> dict[str, dict[str, str]]:
    """Return each migration of each store with a hash of its SQL: an applied migration must not change."""
    return {
        store: {step.name: hashlib.sha256(step.sql.encode()).hexdigest()[:16] for step in steps(store)}
        for store in ("sqlite", "postgres")
    }


def frames() -> Json:
    """Return the fields of each command and whether they are required, and the versions and fields of each event."""
    return {
        "commands": {
            kind: {field.encode_name: field.required for field in msgspec.structs.fields(command)}
            for kind, command in wire.COMMANDS.items()
        },
        "events": {
            kind: [field.encode_name for field in msgspec.structs.fields(event)] for kind, event in EVENTS.items()
        },
        "versions": VERSIONS,
    }


def all_of_it() -> Json:
    found = {
        "settings": settings(),
        "commands": commands(),
        "http": http(),
        "frames": frames(),
        "tables": tables(),
        "closes": {code.name: int(code) for code in Close},
        "errors": sorted(str(code.value) for code in Err),
    }
    return msgspec.json.decode(msgspec.json.encode(found))
