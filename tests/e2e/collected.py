"""The garbage collector as a server sets it, for a server in the process of a test."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from greendot.app.collector import Collector
from greendot.app.collector_model import NodeLoad
from greendot.app.node import Node


@contextmanager
def collected_as_served(node: Node) -> Iterator[Collector]:
    """Set the garbage collector as `greendot serve` does. The test's own objects are frozen, too."""
    thresholds, callbacks = gc.get_threshold(), [*gc.callbacks]
    collector = Collector(lambda: NodeLoad(len(node.registry.connections), node.hub.topics))
    collector.start()
    try:
        yield collector
    finally:
        gc.callbacks[:] = callbacks
        gc.set_threshold(*thresholds)
        gc.unfreeze()
