"""Frameworks that the tests of examples and integrations need."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest


def needs(*packages: str) -> None:
    """Skip the test if a framework is not installed; fail in CI."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        reason = f"install the examples' frameworks (pip install '.[examples]'): {', '.join(missing)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason, allow_module_level=True)
