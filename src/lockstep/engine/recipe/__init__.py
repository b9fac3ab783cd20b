"""What a run computes: recipes, the job, and how a global batch is cut."""
