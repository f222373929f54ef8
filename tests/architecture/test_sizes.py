"""Files and functions stay small enough to be read at once."""

from __future__ import annotations

import ast

import pytest

from .sources import Module, modules

MOST_LINES = 600  # usual are 150 to 350; more only where a module is one thing
MOST_FUNCTION_LINES = 50
MOST_PARAMETERS = 6

every_module = pytest.mark.parametrize("module", modules(), ids=lambda module: module.name or "greendot")


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """All of them but the object itself."""
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [argument.arg for argument in (given.vararg, given.kwarg) if argument is not None]
    return [name for name in names if name not in ("self", "cls")]


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is a command of the CLI: its parameters are the command's options."""
    called = (ast.unparse(decorator).partition("(")[0] for decorator in function.decorator_list)
    return any(name.endswith(".command") for name in called)  # of click, or of a group of commands


@every_module
def test_no_file_is_long(module: Module) -> None:
    assert len(module.lines) <= MOST_LINES


@every_module
def test_no_function_is_long(module: Module) -> None:
    sizes = {f"{module.name}.{f.name}": (f.end_lineno or 0) - f.lineno + 1 for f in module.functions()}
    assert {name: size for name, size in sizes.items() if size > MOST_FUNCTION_LINES} == {}


@every_module
def test_no_function_takes_many_parameters(module: Module) -> None:
    if module.part == "settings":
        return
    many = {
        f"{module.name}.{function.name}": len(parameters(function))
        for function in module.functions()
        if len(parameters(function)) > MOST_PARAMETERS and not is_command(function)
    }
    assert many == {}
