"""Find the rules' bugs in the trace of a run: one file per rule, named after the rule."""
