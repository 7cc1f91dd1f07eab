"""What traces say: curves, paired comparisons, diagnostics, tuning."""
