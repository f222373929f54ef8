"""Errors of the examples' start command."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

START = Path(__file__).parents[2] / "examples" / "start.py"


def said(*arguments: str) -> str:
    """Run the command, check exit code 2 and return the error."""
    result = subprocess.run([sys.executable, str(START), *arguments], capture_output=True, text=True, timeout=30)
    assert (result.returncode, result.stdout) == (2, "")
    return result.stderr


def test_without_a_name_the_examples_there_are_are_listed() -> None:
    text = said()
    assert "make example NAME=cursors" in text
    assert {"flask", "fastapi", "django", "outbox", "react", "cursors"} <= {*text.split()}


@pytest.mark.parametrize("flag", ["--port", "--greendot-port"])
def test_a_port_in_use_is_reported_in_one_line_with_another_port(flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = str(holder.getsockname()[1])
        free = [word for word in ("--port", "--greendot-port") if word != flag]
        text = said("cursors", flag, taken, *free, "0")
    assert text.startswith(f"Port {taken} cannot be used: Address already in use.")
    assert f'make example NAME=cursors ARGS="{flag} ' in text
    assert text.count("\n") == 1
