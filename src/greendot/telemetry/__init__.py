"""Logs, metrics and traces. Every log event is listed in `log_events`, every metric in `metrics_catalogue`."""
