"""Names of one run: each run has its own users and rooms, so that runs can share a server."""

from __future__ import annotations

from typing import Any


class Scope:
    """Suffix of all users and rooms of a run. Scripts use the names without the suffix."""

    def __init__(self, suffix: str) -> None:
        self.suffix = f".{suffix}"

    def wide(self, name: str) -> str:
        """Return the name that the server knows."""
        return name + self.suffix

    def narrow(self, value: Any) -> Any:
        """Return a value with the names of the script."""
        if isinstance(value, str):
            return value.removesuffix(self.suffix)
        if isinstance(value, list):
            return [self.narrow(one) for one in value]
        if isinstance(value, dict):
            return {self.narrow(name): self.narrow(one) for name, one in value.items()}
        return value
