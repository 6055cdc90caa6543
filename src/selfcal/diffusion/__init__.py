"""The noise process, scores, guidance and samplers: functions of (x, σ) that know no files and no methods."""
