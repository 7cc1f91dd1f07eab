"""Lessons: their files, the core's numbers for their texts, and the check of predictions."""
