"""Mutation testing of pure modules: `make mutants`. See docs/adr/0047-mutants.md."""
