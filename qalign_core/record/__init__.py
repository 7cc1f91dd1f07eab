"""The record of a run: its trace, and how it is drawn and resumed."""
