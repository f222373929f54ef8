"""Capacity plan, without I/O: from a workload to figures with their formulas."""
