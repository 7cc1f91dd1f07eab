"""The Theory lab."""
