"""The paper's methods: `table` (the rows), `stage` (what a row is made of), `reading`, `terms/` (one file each)."""
