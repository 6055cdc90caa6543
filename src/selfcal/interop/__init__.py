"""Models from elsewhere: taken in as scores in our units, and given out again."""
