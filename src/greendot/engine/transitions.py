"""Who comes and goes, for those outside who want to be told of it once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol


class Turn(NamedTuple):
    """A user came (online, as others see it) or went; a room came to have somebody in it, or nobody."""

    kind: Literal["user", "room"]
    tenant: str
    name: str
    on: bool


class TurnEngine(Protocol):
    """Tells of turns the one node whose verb made them; nobody if the verb's answer was lost on its way.

    What is restored after a loss is no turn. When a node dies its users are told of by the node that ends their
    sessions; of its rooms nobody is told before somebody looks into them.
    """

    turned: Callable[[Turn], None] | None  # called in the loop's thread; must not take long
