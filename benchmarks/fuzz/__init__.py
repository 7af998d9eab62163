"""A fuzz campaign: random batches, damaged files and killed processes, until the time is over."""
