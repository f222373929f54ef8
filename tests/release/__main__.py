"""Commands: `build FOLDER` builds the artefacts of a release, `check FOLDER` also installs and runs them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from release.artefacts import Failed, build_all
from release.check import check


def main(words: list[str]) -> int:
    match words:
        case ["check", folder]:
            return check(Path(folder).resolve())
        case ["build", folder]:
            with tempfile.TemporaryDirectory(prefix="greendot-release-") as work:
                for path in build_all(Path(folder).resolve(), Path(work)):
                    print(path)
            return 0
    print("usage: python -m release build|check FOLDER", file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as error:
        print(error, file=sys.stderr)
        sys.exit(1)
