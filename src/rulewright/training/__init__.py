"""One loop with checkpoints for every network."""
