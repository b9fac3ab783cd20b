"""The workshop: experiments, and the pages that ask, run, draw and check."""
