"""Shared engine on Redis or Valkey. `engine` assembles the parts; all key names are in `keys`."""
