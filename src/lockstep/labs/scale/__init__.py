"""Lab 3's experiments: training at scale."""
