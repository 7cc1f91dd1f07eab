"""Reward models trained on pairs of a language model's own responses."""
