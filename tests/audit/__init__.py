"""Audit of dependencies: their versions, compared with a committed copy of known vulnerabilities (`make audit`)."""
