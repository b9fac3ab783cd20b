"""Looks into a training script while it runs, unchanged: starts it, and notes what its ranks do."""
