"""Mutation testing of pure modules: `make mutants`. See docs/adr/0044-mutants.md."""
