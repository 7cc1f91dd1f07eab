"""The Theory lab's mathematics: everything that can be computed exactly, with no sampling error."""
