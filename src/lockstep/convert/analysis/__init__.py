"""Find out what a script does, as far as rewrites and refusals need to know."""
