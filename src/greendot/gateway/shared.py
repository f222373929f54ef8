"""What the parts of a node have in common."""

from __future__ import annotations

from msgspec import Struct, field

from greendot.clock import Clock
from greendot.gateway.arrivals import Arrivals
from greendot.gateway.hub import Hub
from greendot.gateway.registry import Registry
from greendot.gateway.slices import Slices
from greendot.gateway.tasks import Tasks
from greendot.gateway.timers import Timers
from greendot.gateway.witness import Witness


class Shared(Struct, frozen=True):
    """One of each per node."""

    clock: Clock
    timers: Timers
    tasks: Tasks
    hub: Hub
    registry: Registry
    arrivals: Arrivals
    witness: Witness
    slices: Slices = field(default_factory=Slices)
