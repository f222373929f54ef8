"""Shop that notifies its customers of their orders."""
