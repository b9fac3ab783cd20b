"""Find the bugs in the source: one file per rule, named as in rules.toml."""
