"""Pages that play and draw runs, their scripts, words and colors, and the command of a run."""
