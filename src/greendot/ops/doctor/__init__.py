"""Checks of a set-up, without I/O: from settings and facts to findings."""
