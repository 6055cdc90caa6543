"""What is wrong with a run: measurements of its guide, its samples and its labels, and what follows from them."""
