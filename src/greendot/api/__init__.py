"""HTTP for app backends and operators. Thin: decode, authorise, call, encode."""
