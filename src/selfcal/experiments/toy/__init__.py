"""`selfcal toy`: gradients of classifiers against exact ones, in two dimensions."""
