"""Lessons: what is said beside the pages, asked before it is shown, and checked by the core."""
