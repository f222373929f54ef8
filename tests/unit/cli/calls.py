"""Calling the command line in this process."""

from __future__ import annotations

import os

from click.testing import CliRunner, Result

from greendot.cli import cli
from greendot.errors import GreendotError

SECRET = "a secret of at least thirty-two characters"


def call(*arguments: str, secret: str = SECRET, **environment: str) -> Result:
    # Nothing can be kept there, so that a server which should have been refused does not run either.
    given = {"GREENDOT_AUTH_SECRET": secret, "GREENDOT_SERVER_DATA_DIR": "/dev/null/greendot"} | environment
    inherited = dict.fromkeys(name for name in os.environ if name.startswith("GREENDOT_"))
    return CliRunner(env=inherited | given).invoke(cli, arguments)


def complaint(*arguments: str, secret: str = SECRET, **environment: str) -> str:
    """The sentence with which a call was refused. `main` prints it and exits with 2; a traceback is shown to nobody."""
    result = call(*arguments, secret=secret, **environment)
    if isinstance(result.exception, GreendotError):
        return str(result.exception)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    return result.output
