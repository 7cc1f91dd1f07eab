"""Problem sets: what is asked, and what is right."""
