"""Lessons: texts and questions next to the pages, with answers that the core checks."""
