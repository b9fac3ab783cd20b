"""What a run computes: the recipe, the built-in recipes, the job, and how a global batch is cut."""
