"""Size limits of files and functions."""

from __future__ import annotations

import ast

from .sources import Module, offences

MOST_LINES = 600  # 150 to 350 are usual; more only if a module is one thing
MOST_FUNCTION_LINES = 50
MOST_PARAMETERS = 6
MOST_DEPENDENCIES = 13  # of a constructor: each has a name, and none is hidden in a tuple


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return all parameters except `self`."""
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [argument.arg for argument in (given.vararg, given.kwarg) if argument is not None]
    return [name for name in names if name not in ("self", "cls")]


def called(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the name with its line: classes of a module may have functions of the same name."""
    return f"{function.name}:{function.lineno}"


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the function is a CLI command: its parameters are the command's options."""
    called = (ast.unparse(decorator).partition("(")[0] for decorator in function.decorator_list)
    return any(name.endswith(".command") for name in called)  # of click, or of a group of commands


def test_no_file_is_long() -> None:
    assert offences(lambda module: max(0, len(module.lines) - MOST_LINES)) == {}


def test_no_function_is_long() -> None:
    def long(module: Module) -> dict[str, int]:
        sizes = [
            (called(function), (function.end_lineno or 0) - function.lineno + 1) for function in module.functions()
        ]
        return {name: size for name, size in sizes if size > MOST_FUNCTION_LINES}

    assert offences(long) == {}


def test_no_function_takes_many_parameters() -> None:
    def many(module: Module) -> dict[str, int]:
        if module.part == "config":
            return {}
        functions = [each for each in module.functions() if not is_command(each)]
        return {called(each): len(parameters(each)) for each in functions if len(parameters(each)) > most(each)}

    def most(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
        return MOST_DEPENDENCIES if function.name == "__init__" else MOST_PARAMETERS

    assert offences(many) == {}
