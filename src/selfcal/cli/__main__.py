"""`python -m selfcal.cli`."""

from selfcal.cli import main

main()
