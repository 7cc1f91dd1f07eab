"""Figures and tables of results, and the forms that they are written in."""
