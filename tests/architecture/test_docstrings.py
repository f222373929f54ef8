"""Each module and each public class has a docstring."""

from __future__ import annotations

import ast

from .sources import Module, offences

# Their subclasses are rows of tables in docs/protocol.md, which tests/docs compares with the code.
WIRE = {"Command", "Event", "InboxMark"}


def is_documented_elsewhere(module: Module, kind: ast.ClassDef) -> bool:
    # The sections of the settings are tables in docs/settings.md, which tests/docs compares with the code, too.
    return module.name == "config.settings" or bool(WIRE & {ast.unparse(base) for base in kind.bases})


def test_a_module_has_a_docstring() -> None:
    # An empty __init__.py only makes a folder of data a package.
    assert offences(lambda module: module.lines and not ast.get_docstring(module.tree)) == {}


def test_a_public_class_has_a_docstring() -> None:
    def silent(module: Module) -> list[str]:
        public = (kind for kind in module.classes() if not kind.name.startswith("_"))
        return [
            kind.name for kind in public if not ast.get_docstring(kind) and not is_documented_elsewhere(module, kind)
        ]

    assert offences(silent) == {}
