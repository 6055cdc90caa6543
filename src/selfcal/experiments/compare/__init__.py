"""`selfcal compare`: methods × labels × seeds under one protocol, resumable.

grid.py: what is compared, and where each cell's files lie
runner.py: the cells, side by side
board.py: the live table
"""

from selfcal.experiments.compare.grid import Cell, Grid, Protocol
from selfcal.experiments.compare.runner import compare

__all__ = ["Cell", "Grid", "Protocol", "compare"]
