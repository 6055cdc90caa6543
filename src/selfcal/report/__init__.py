"""Pages, tables and figures, made from results files only."""
