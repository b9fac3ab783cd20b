"""Stand-ins that are imported under their own names: relative imports find them under both."""
