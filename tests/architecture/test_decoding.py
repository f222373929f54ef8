"""JSON from outside is decoded in one place, which turns each failure into one error."""

from __future__ import annotations

import ast

from .sources import Module, modules, offences

PLACE = "protocol.decoding"
# Modules that may call the decoder directly, with the reason.
OWN = {
    "protocol.codec": "the hot path of commands: it catches every error by itself",
    "protocol.versions": "frames that a node of ours has made",
    "store.postgres.push": "rows that the store has written",
    "store.postgres.reactions": "rows that the store has written",
    "store.sqlite.webhooks": "rows that the store has written",
    "store.sqlite.push": "rows that the store has written",
    "testing.event_stream": "the client of tests, which may fail",
    "testing.wire": "the client of tests, which may fail",
}
DIRECT = {"msgspec.json.decode", "msgspec.json.Decoder", "json.loads", "json.load"}
NAMES = {name.rpartition(".")[2] for name in DIRECT}


def direct(module: Module) -> set[str]:
    return {
        ast.unparse(node) for node in module.nodes if isinstance(node, ast.Attribute) and node.attr in NAMES
    } & DIRECT


def test_json_is_decoded_by_the_one_module_for_it() -> None:
    found = offences(lambda module: module.name not in (PLACE, *OWN) and direct(module))
    assert found == {}, f"use {PLACE}: msgspec raises RecursionError and UnicodeDecodeError as well"


def test_every_exception_is_needed() -> None:
    assert {module.name for module in modules() if direct(module)} == {PLACE, *OWN}
