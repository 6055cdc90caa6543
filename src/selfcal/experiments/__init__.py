"""Studies made of many runs: compare, demo, toy, each with its page."""
