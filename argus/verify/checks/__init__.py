"""Properties that are checked one by one: bounds, races, coverage, convergence, machine rules."""
