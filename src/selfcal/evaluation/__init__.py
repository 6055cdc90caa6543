"""How good a generator is: judges and feature extractors, the real images' side, and `evaluate`."""
