"""Tools for operators: doctor, capacity plan, backup, worker supervisor."""
