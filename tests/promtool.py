"""Prometheus's own tool, where it is installed."""

from __future__ import annotations

import os
import shutil

import pytest


def promtool() -> str:
    """Return the path of promtool. Without promtool the test is skipped; in CI it fails."""
    found = shutil.which("promtool")
    if found is None and os.environ.get("CI"):
        pytest.fail("promtool is required in CI; run: sh scripts/ensure-debs prometheus@/usr/bin/promtool")
    if found is None:
        pytest.skip("promtool is not installed; install the Debian package prometheus")
    return found
