"""How rules see their bugs while a script runs: one file per rule, named as the rule is."""
