"""`make audit`: compare the dependencies with the copy of advisories. Fails for a vulnerability without explanation.

With REFRESH set, the copy is written first: from OSV's service, or from the folders in ADVISORIES.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from audit import copy
from audit.inventory import uses
from audit.report import report


def main() -> int:
    today = datetime.now(UTC).date()
    used = uses()
    try:
        if os.environ.get("REFRESH"):
            folders = [Path(word) for word in os.environ.get("ADVISORIES", "").split()]
            copy.write(copy.refreshed({use.package for use in used}, today, folders))
        lines, failed = report(copy.read(), used, today)
    except copy.Unreadable as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
