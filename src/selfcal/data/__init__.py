"""Piles of examples: one module per source, all listed in `sources`; few-label splits; batches."""
