"""Calls of the command line in this process."""

from __future__ import annotations

import os

from click.testing import CliRunner, Result

from greendot.cli import cli
from greendot.errors import GreendotError

SECRET = "a secret of at least thirty-two characters"


def call(*arguments: str, secret: str = SECRET, **environment: str) -> Result:
    # No server can keep data in this folder. So a server that should have been refused does not run either.
    given = {"GREENDOT_AUTH_SECRET": secret, "GREENDOT_SERVER_DATA_DIR": "/dev/null/greendot"} | environment
    inherited = dict.fromkeys(name for name in os.environ if name.startswith("GREENDOT_"))
    return CliRunner(env=inherited | given).invoke(cli, arguments)


def complaint(*arguments: str, secret: str = SECRET, **environment: str) -> str:
    """Return the error text of a refused call. `main` prints it and exits with 2, without a traceback."""
    result = call(*arguments, secret=secret, **environment)
    if isinstance(result.exception, GreendotError):
        return str(result.exception)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    return result.output
