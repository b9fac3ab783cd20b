"""The definition of a run: recipes, the job, and how a global batch is cut."""
