"""Context of a node: the objects that its services share."""

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
    """Objects that all services of a node share."""

    clock: Clock
    timers: Timers
    tasks: Tasks
    hub: Hub
    registry: Registry
    surge: SurgeDetector
    recorder: EventRecorder
    slices: TimeSlices = field(default_factory=TimeSlices)
