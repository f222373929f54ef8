"""How much of everything so many users need. Decides only: a workload goes in, figures with their formulas go out."""
