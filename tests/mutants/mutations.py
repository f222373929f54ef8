"""Mutants of a module: small changes of its source that a unit test must detect.

Changes are made in the text, so that a survivor can be shown as a line before and after. Annotations, decorators,
docstrings, f-strings, `assert`, class keywords and `__slots__` are not changed, because they hold no decisions. Neither
are named constants (`MOST_HELD = 300`): the size of a limit is a choice, and its tests use the name.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
COMMENT = re.compile(r"  # .*$", re.MULTILINE)
UNTOUCHED_CALLS = {"cast", "TypeVar", "NewType"}
REMOVED = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Delete, ast.Raise, ast.Break, ast.Continue)


Proposal = tuple[ast.AST, str]  # a node and the text in its place


class Mutant(NamedTuple):
    """One change. `where` is the qualified name of its function or class."""

    where: str
    line: int
    before: str
    after: str
    source: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.where, self.before, self.after


class Change(NamedTuple):
    """Replacement of a node's text."""

    node: ast.AST
    text: str
    where: str


def mutants(source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of its lines."""
    text = Text(source)
    found = [text.changed(change) for change in Walk(text).changes(ast.parse(source))]
    unique = {(one.line, one.key, one.source): one for one in found if one.source != source}
    return sorted(unique.values(), key=lambda one: one.line)


class Text:
    """Source text, indexed by the positions of nodes: lines from 1, columns in bytes."""

    def __init__(self, source: str) -> None:
        self._bytes = source.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self._bytes[start:end].decode()

    def changed(self, change: Change) -> Mutant:
        start, end = self.span(change.node)
        first = max(begin for begin in self._starts if begin <= start)
        last = min((begin for begin in self._starts if begin >= end), default=len(self._bytes))
        before, after = self._bytes[first:start], self._bytes[end:last]
        replaced = change.text.encode()
        return Mutant(
            change.where,
            self._starts.index(first) + 1,
            one_line(self._bytes[first:last].decode()),
            one_line((before + replaced + after).decode()),
            (self._bytes[:start] + replaced + self._bytes[end:]).decode(),
        )


def one_line(text: str) -> str:
    """Return the text in one line, without comments."""
    return " ".join(COMMENT.sub("", text).split())


class Walk:
    """Visitor of a module that proposes changes."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._scope: list[str] = []
        self._bound: list[Counter[str]] = [Counter()]

    def changes(self, node: ast.AST) -> Iterator[Change]:
        """Yield changes of this node and of all nodes in it."""
        for kind, proposed in PROPOSALS:
            if isinstance(node, kind):
                for changed, text in proposed(self, node):
                    yield Change(changed, text, ".".join(self._scope))
        yield from self._inside(node)

    def _inside(self, node: ast.AST) -> Iterator[Change]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._scope.append(node.name)
            self._bound.append(Counter() if isinstance(node, ast.ClassDef) else bound(node))
            for child in self._children(node):
                yield from self.changes(child)
            self._scope.pop()
            self._bound.pop()
        else:
            for child in self._children(node):
                yield from self.changes(child)

    def _children(self, node: ast.AST) -> list[ast.AST]:
        match node:
            case ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom():
                return []
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                defaults = [one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None]
                return [*defaults, *node.body]
            case ast.ClassDef():
                return [*node.body]
            case ast.Lambda():
                return [node.body]
            case ast.AnnAssign():
                return [node.value] if node.value is not None else []
            case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
                return []
            case ast.Assign(value=value) if not self._scope and self._is_number(value):
                return []
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return []
            case ast.Call(func=ast.Name(id=name)) if name in UNTOUCHED_CALLS:
                return []
            case ast.Subscript(value=ast.Name(id=name)) if name[0].isupper():
                return []  # a type
            case ast.BinOp(op=ast.BitOr()) if self._is_type(node):
                return []
        return [*ast.iter_child_nodes(node)]

    @staticmethod
    def _is_number(value: ast.expr) -> bool:
        """Return whether the node is a number, several numbers, or an expression of numbers."""
        written = ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop | ast.Name | ast.expr_context
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        return all(isinstance(node, written) for part in parts for node in ast.walk(part))

    @staticmethod
    def _is_type(node: ast.AST) -> bool:
        """Return whether the node looks like a type, such as `str | None`."""
        match node:
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                return Walk._is_type(left) and Walk._is_type(right)
            case ast.Constant(value=None) | ast.Subscript():
                return True
            case ast.Name(id=name):
                return name in {"str", "int", "float", "bool", "bytes", "dict", "list"} or (
                    name[0].isupper() and not name.isupper()
                )
            case ast.Attribute(attr=name):
                return name[0].isupper() and not name.isupper()
        return False

    def compare(self, node: ast.Compare) -> Iterator[Proposal]:
        for place, op in enumerate(node.ops):
            for instead in COMPARED[type(op)]:
                ops = [*node.ops[:place], instead(), *node.ops[place + 1 :]]
                yield node, spelled(ast.Compare(node.left, ops, node.comparators))

    def calculate(self, node: ast.BinOp) -> Iterator[Proposal]:
        if not self._is_type(node):
            yield node, spelled(ast.BinOp(node.left, CALCULATED[type(node.op)](), node.right))

    def augment(self, node: ast.AugAssign) -> Iterator[Proposal]:
        yield node, ast.unparse(ast.AugAssign(node.target, CALCULATED[type(node.op)](), node.value))

    def join(self, node: ast.BoolOp) -> Iterator[Proposal]:
        yield node, spelled(ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))

    def negate(self, node: ast.UnaryOp) -> Iterator[Proposal]:
        if isinstance(node.op, ast.Not):
            yield node, spelled(node.operand)

    def constant(self, node: ast.Constant) -> Iterator[Proposal]:
        value = node.value
        if isinstance(value, bool):
            yield node, repr(not value)
        elif isinstance(value, int | float):
            yield node, repr(value + 1)
            if value != 0:
                yield node, repr(value - 1)

    def decide(self, node: ast.If | ast.IfExp) -> Iterator[Proposal]:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield node.test, "True"
            yield node.test, "False"

    def loop(self, node: ast.While) -> Iterator[Proposal]:
        yield node.test, "False"

    def choose(self, node: ast.comprehension) -> Iterator[Proposal]:
        for test in node.ifs:
            yield test, "True"
            yield test, "False"

    def answer(self, node: ast.Return) -> Iterator[Proposal]:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and not node.value.value):
            yield node, "return None"

    def swap(self, node: ast.Call) -> Iterator[Proposal]:
        if isinstance(node.func, ast.Name) and node.func.id in SWAPPED:
            yield node.func, SWAPPED[node.func.id]

    def remove(self, node: ast.stmt) -> Iterator[Proposal]:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.AnnAssign(value=None):
                return
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                # Without the only value of a name, all later uses raise. That proves nothing.
                if self._bound[-1][name] < 2:
                    return
        if self._scope:
            yield node, "pass"


def spelled(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def bound(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Counter[str]:
    """Count the assignments to each plain name in a function."""
    arguments = [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]
    stored = [one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    return Counter([*arguments, *stored])


PROPOSALS: list[tuple[type | tuple[type, ...], Callable[..., Iterator[Proposal]]]] = [
    (ast.Compare, Walk.compare),
    (ast.BinOp, Walk.calculate),
    (ast.AugAssign, Walk.augment),
    (ast.BoolOp, Walk.join),
    (ast.UnaryOp, Walk.negate),
    (ast.Constant, Walk.constant),
    ((ast.If, ast.IfExp), Walk.decide),
    (ast.While, Walk.loop),
    (ast.comprehension, Walk.choose),
    (ast.Return, Walk.answer),
    (ast.Call, Walk.swap),
    (REMOVED, Walk.remove),
]
