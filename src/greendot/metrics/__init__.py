"""What is counted, what each number means, and how it is written for Prometheus."""

from greendot.metrics.counters import Metrics

__all__ = ["Metrics"]
