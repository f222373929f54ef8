"""What the parts of a node have in common."""

from __future__ import annotations

from msgspec import Struct, field

from greendot.clock import Clock
from greendot.node.event_recorder import Witness
from greendot.node.hub import Hub
from greendot.node.registry import Registry
from greendot.node.surge_detector import Arrivals
from greendot.node.tasks import Tasks
from greendot.node.time_slices import Slices
from greendot.node.timers import Timers


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
