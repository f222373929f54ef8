"""Extraction of archives that tests made, the same in every Python version."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Extract the archive. Python 3.11.2 (Debian 12) has no filters; 3.12 and 3.13 warn without one."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)  # noqa: S202 - a test made it
