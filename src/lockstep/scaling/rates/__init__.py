"""Learning rates: schedules, and rules for a batch that grows."""
