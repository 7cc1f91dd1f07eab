"""Runs: drawing one, its trace format and files, and data frames."""
