"""Sessions, status, watches and celebrity fan-out. `model` is the pure presence record."""
