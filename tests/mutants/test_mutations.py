"""Mutations of a source: the proposed changes, and the parts that are not changed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from . import faults
from .mutations import mutants

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LISTED = tomllib.loads((HERE / "modules.toml").read_text())


def changes(source: str) -> list[str]:
    return [one.after for one in mutants(dedent(source))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = b < c", ["a = (b <= c)", "a = (b >= c)"]),
        ("a = b is not c", ["a = (b is c)"]),
        ("f(b + c * d)", ["f((b - c * d))", "f(b + (c / d))"]),
        ("a = b and not c", ["a = (b or not c)", "a = b and (c)"]),
        ("f(5)", ["f(6)", "f(4)"]),
        ("f(0)", ["f(1)"]),
        ("f(True)", ["f(False)"]),
        ("a = max(b, c)", ["a = min(b, c)"]),
        ("a = b if c else d", ["a = b if True else d", "a = b if False else d"]),
        ("a = [b for b in c if b]", ["a = [b for b in c if True]", "a = [b for b in c if False]"]),
        ("def f():\n    return a", ["return None"]),
        ("def f():\n    raise a", ["pass"]),
        ("def f():\n    a.b += c", ["a.b -= c", "pass"]),
        ("while a: b", ["while False: b"]),
    ],
)
def test_each_kind_of_decision_is_changed(source: str, expected: list[str]) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        "MOST, LEAST = 5 * DAY, -1",
        "a: int | None = b",
        "class A(B, frozen=True):\n    __slots__ = ('a',)",
        "a = f'{b + 1}'",
        "def f():\n    assert a > 1",
        "def f():\n    return None",
        "def f():\n    a = b\n    return",  # later uses of the name would raise without it
        "@a(1)\ndef f(): ...",
    ],
)
def test_what_holds_no_decision_is_left_alone(source: str) -> None:
    assert changes(source) == []


def test_a_mutant_is_known_by_its_function_and_text_and_not_by_its_line() -> None:
    source = "class A:\n    def f(self):\n        return b == c  # said so\n"
    first, second = mutants(source)[0], mutants(f"\n\n{source}")[0]
    assert first.key == second.key == ("A.f", "return b == c", "return None")
    assert (first.line, second.line) == (3, 5)
    assert first.source == source.replace("return b == c", "return None")


def test_columns_are_counted_in_bytes_as_the_parser_does() -> None:
    assert changes("a = 'é' + b == c") == ["a = ('é' + b != c)", "a = ('é' - b) == c"]


def test_every_model_is_listed_with_tests_that_exist() -> None:
    source = ROOT / "src/greendot"
    models = {*source.rglob("model.py"), *source.rglob("*_model.py")}
    named = {path.relative_to(source).with_suffix("").as_posix() for path in models if mutants(path.read_text())}
    assert named - {"ops/facts_model"} <= LISTED.keys()  # facts hold no decisions
    for module, tests in LISTED.items():
        folder, _, name = module.rpartition("/")
        assert all((ROOT / test).is_file() for test in tests or [f"tests/unit/{folder}/test_{name}.py"]), module


def test_each_equivalent_mutant_exists_and_has_a_reason() -> None:
    for module, listed in tomllib.loads((HERE / "equivalent.toml").read_text()).items():
        there = {one.key for one in mutants((ROOT / f"src/greendot/{module}.py").read_text())}
        for one in listed:
            assert {(one["in"], one["line"], change) for change in one["changes"]} <= there, one
            assert one["why"], one


def test_every_listed_fault_fits_the_source() -> None:
    assert faults.listed()  # raises ValueError if a text is not exactly once in its file
