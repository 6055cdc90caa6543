"""Networks: a score of (x, σ), and a classifier of (x, σ). A kind of network is a row of `recipes.KINDS`."""
