"""Import hook that removes all metrics from Greendot, for the comparison in `metered.py`.

The hook removes statements that add to counters or histograms while the sources are loaded. Nothing else changes.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

COUNTERS = {"metrics", "_metrics", "counts"}  # objects of statements like `self.counts.published += 1`
MEASURES = {"observe", "_on_timed", "timed"}  # calls that add to a histogram
taken_out: list[str] = []


class Uncounted(ast.NodeTransformer):
    """Transformer that removes the metrics of a module."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        target = node.target
        if isinstance(target, ast.Attribute) and _name(target.value) in COUNTERS:
            return self._without(node, node.value)  # the added value may have side effects
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if isinstance(call, ast.Call) and _name(call.func) in MEASURES:
            return self._without(node, ast.Constant(None))
        return node

    @staticmethod
    def _without(node: ast.stmt, rest: ast.expr) -> ast.AST:
        taken_out.append(ast.unparse(node))
        return ast.copy_location(ast.Expr(rest), node)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


class _Loader(SourceFileLoader):
    def source_to_code(self, data: Any, path: Any, **_: Any) -> CodeType:
        return compile(ast.fix_missing_locations(Uncounted().visit(ast.parse(data))), path, "exec")

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(
            self.get_data(self.path), self.path
        )  # never from a cache, which contains the metrics


class Finder(MetaPathFinder):
    """Finder for the modules of Greendot."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("greendot"):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def unstamped(bus: ModuleType) -> None:
    """Disable publish times in messages. A counter selects the messages that carry one, and it is removed."""
    bus.RedisBus._write = lambda self, channel, message, topic=None: self._messages.write(channel, message, topic)
