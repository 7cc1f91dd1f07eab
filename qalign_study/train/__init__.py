"""The embedded models from nothing, and reward models from a language model's own responses."""
