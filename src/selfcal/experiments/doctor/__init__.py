"""`selfcal doctor`: the page of a run's diagnosis."""
