"""Runs on disk: problem sets in; traces, results and reports out."""
