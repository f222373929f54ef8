"""Jobs: periodic work that one process of all runs."""
