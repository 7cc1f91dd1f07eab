"""Final answers in texts: found, and brought to one form, so that equal answers are one vote."""
