"""Data frames, a run's command, and pages that play and draw runs, with scripts and words."""
