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


def unpacked(version: str, folder: Path) -> Path:
    """Extract the version's `src` into this folder.

    Without the history the test is skipped; CI and `make compat` require it.
    """
    git = shutil.which("git") or "false"  # a machine without git has no history
    archive = subprocess.run([git, "archive", COMMITS[version], "src"], cwd=ROOT, capture_output=True)
    if archive.returncode:
        reason = (
            f"the history of this clone does not include {version} ({COMMITS[version][:7]}); run: git fetch --unshallow"
        )
        pytest.fail(reason) if os.environ.get("COMPAT") or os.environ.get("CI") else pytest.skip(reason)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        unpack(tar, folder)
    return folder / "src"
