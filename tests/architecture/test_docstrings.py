"""Every module and every public class says what it is."""

from __future__ import annotations

import ast

import pytest

from .sources import Module, modules

# Their subclasses are rows of tables in docs/protocol.md, which tests/docs compares with the code.
WIRE = {"Command", "Event", "InboxMark"}

every_module = pytest.mark.parametrize("module", modules(), ids=lambda module: module.name or "greendot")


def is_documented_elsewhere(module: Module, kind: ast.ClassDef) -> bool:
    # The sections of the settings are tables in docs/settings.md, compared with the code likewise.
    return module.name == "settings.sections" or bool(WIRE & {ast.unparse(base) for base in kind.bases})


@every_module
def test_a_module_says_what_it_is(module: Module) -> None:
    # An empty __init__.py only makes a folder of data a package.
    assert ast.get_docstring(module.tree) or not module.lines


@every_module
def test_a_public_class_says_what_it_is(module: Module) -> None:
    silent = [
        kind.name
        for kind in module.classes()
        if not kind.name.startswith("_") and not ast.get_docstring(kind) and not is_documented_elsewhere(module, kind)
    ]
    assert silent == []
