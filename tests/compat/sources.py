"""Sources of earlier versions, if the clone has the history."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from unpacking import unpack

ROOT = Path(__file__).parents[2]
# Commit of each recorded version.
COMMITS = {"0.1.0-rc.1": "c64a5ac1e2949c484fe7d5772c7e3d07015e27b4"}
# Commits whose wheels are upgraded to this version. Without a release before 0.1.0 these are the recorded version and a
# later commit, which stores more kinds of data. Replace them by the previous release.
UPGRADED = {**COMMITS, "0.1.0-rc.2": "5c371447cf8200725f9ebd493e86f788ea3eee18"}


class MissingHistoryError(Exception):
    """This clone does not have the commit of an earlier version. The text has the remedy."""


def extract(version: str, folder: Path, *names: str) -> Path:
    """Extract the version's files, by default all, into this folder. Raise MissingHistoryError without its commit."""
    git = shutil.which("git") or "false"  # a machine without git has no history
    commit = UPGRADED[version]
    archive = subprocess.run([git, "archive", commit, *names], cwd=ROOT, capture_output=True)
    if archive.returncode:
        raise MissingHistoryError(
            f"the history of this clone does not include {version} ({commit[:7]}); run: git fetch --unshallow"
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        unpack(tar, folder)
    return folder


def unpacked(version: str, folder: Path, *names: str) -> Path:
    """Extract the version's files, by default `src`, into this folder, and return its `src`.

    Without the history the test is skipped; CI and `make compat` require it.
    """
    try:
        return extract(version, folder, *(names or ("src",))) / "src"
    except MissingHistoryError as error:
        pytest.fail(str(error)) if os.environ.get("COMPAT") or os.environ.get("CI") else pytest.skip(str(error))
