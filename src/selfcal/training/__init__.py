"""From settings and data to a run directory: `fit`, its stages, the loop, checkpoints, locks and signals."""
