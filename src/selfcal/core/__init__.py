"""What every room stands on: errors, settings, files, progress, randomness."""
