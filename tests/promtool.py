"""Prometheus' own tool, where it can be had."""

from __future__ import annotations

import os
import shutil

import pytest


def promtool() -> str:
    """Where it is. In CI it must be there; elsewhere tests that need it are skipped with a word."""
    found = shutil.which("promtool")
    if found is None and os.environ.get("CI"):
        pytest.fail("promtool is needed in CI: sh scripts/ensure-debs prometheus@/usr/bin/promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return found
