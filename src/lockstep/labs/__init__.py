"""The workshop: one folder per lab, with its experiments, pictures, tasks and quiz."""
