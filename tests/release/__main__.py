"""Commands: `build FOLDER` builds the artefacts of a release, `check FOLDER` also installs and runs them.

`lock-image` writes the lock files of the image.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from release.artefacts import Failed, build_all
from release.check import check
from release.image_lock import write_locks


def main(words: list[str]) -> int:
    match words:
        case ["check", folder]:
            return check(Path(folder).resolve())
        case ["build", folder]:
            with tempfile.TemporaryDirectory(prefix="greendot-release-") as work:
                for path in build_all(Path(folder).resolve(), Path(work)):
                    print(path)
            return 0
        case ["lock-image"]:
            for path in write_locks():
                print(path)
            return 0
    print("usage: python -m release build|check FOLDER, or lock-image", file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as error:
        print(error, file=sys.stderr)
        sys.exit(1)
