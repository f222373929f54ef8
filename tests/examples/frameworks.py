"""Frameworks that the tests of examples and integrations need."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest


def needs(*packages: str) -> None:
    """Skip the test if a framework is not installed; fail in CI."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        reason = f"install the examples' frameworks (pip install '.[examples]'): {', '.join(missing)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason, allow_module_level=True)


def django_database(place: str) -> dict[str, Any]:
    """Return Django's settings for a PostgreSQL URL with a `search_path`."""
    url = urlsplit(place)
    (schema,) = parse_qs(url.query)["search_path"]
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path.lstrip("/"),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "HOST": url.hostname,
        "PORT": url.port,
        "OPTIONS": {"options": f"-c search_path={schema}"},
    }
