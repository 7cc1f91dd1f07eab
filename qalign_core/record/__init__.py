"""The record of a run: its trace, how it is drawn and taken up again, and how it is played."""
