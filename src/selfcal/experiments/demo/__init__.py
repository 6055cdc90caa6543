"""`selfcal demo`: plain and self-calibrated guidance side by side, on digits."""
