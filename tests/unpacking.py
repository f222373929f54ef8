"""Archives that tests have made, unpacked in the same way by every Python."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Python 3.11.2, which is Debian 12's, has no filters; 3.12 and 3.13 warn without one."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)  # noqa: S202 - a test made it
