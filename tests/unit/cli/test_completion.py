"""Completion of commands and options in a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.calls import call, complaint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with the `greendot` command, as an installation does."""
    program = tmp_path / "greendot"
    program.write_text(f"#!{sys.executable}\nfrom greendot.cli import main\nmain()\n")
    program.chmod(0o755)
    return tmp_path


def completed(folder: Path, *lines: str) -> list[set[str]]:
    """Return the completions that bash offers at the end of each line."""
    script = """
        eval "$(greendot completion bash)" || exit
        for line in "$@"; do
            COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            _greendot_completion greendot
            echo "${COMPREPLY[@]}"
        done
    """
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed on this machine")
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    command = [bash, "--norc", "-c", script, "bash", *lines]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    return [{*line.split()} for line in result.stdout.splitlines()]


def test_bash_completes_commands_and_options(folder: Path) -> None:
    command, option = completed(folder, "greendot keys ro", "greendot genconfig --no")
    assert (command, option) == ({"rotate"}, {"--no-input"})


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --")])
def test_each_shell_has_its_own(shell: str, word: str) -> None:
    said = call("completion", shell).output
    assert word in said
    assert "_GREENDOT_COMPLETE" in said


def test_an_unsupported_shell_is_refused_and_the_help_explains_the_installation() -> None:
    assert "'csh' is not one of" in complaint("completion", "csh")
    said = call("completion", "--help").output
    assert """echo 'eval "$(greendot completion bash)"' >> ~/.bashrc""" in said
    assert "~/.config/fish/completions" in said
