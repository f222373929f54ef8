"""W3C Trace Context: in the course of what something is done, across nodes, and spans of it for OpenTelemetry."""
