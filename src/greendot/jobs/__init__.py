"""Jobs: what is to be done now and then, by one process of all."""
