"""The shared engine: Redis or Valkey. `engine` puts the parts together; key names are in `keys` and nowhere else."""
