"""Rate limits, quotas, connection limits, overload and backpressure."""
