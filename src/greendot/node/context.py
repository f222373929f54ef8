"""Context of a node: the parts that its services share."""

from __future__ import annotations

from msgspec import Struct, field

from greendot.clock import Clock
from greendot.node.event_recorder import EventRecorder
from greendot.node.hub import Hub
from greendot.node.registry import Registry
from greendot.node.surge_detector import SurgeDetector
from greendot.node.tasks import Tasks
from greendot.node.time_slices import TimeSlices
from greendot.node.timers import Timers


class NodeContext(Struct, frozen=True):
    """Shared parts of a node, one of each."""

    clock: Clock
    timers: Timers
    tasks: Tasks
    hub: Hub
    registry: Registry
    surge: SurgeDetector
    recorder: EventRecorder
    slices: TimeSlices = field(default_factory=TimeSlices)
