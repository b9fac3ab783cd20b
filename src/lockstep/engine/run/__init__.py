"""The files of a run: its folder, metrics, checkpoints and summary."""
