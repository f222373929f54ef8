"""A shop that tells its customers what became of their orders."""
