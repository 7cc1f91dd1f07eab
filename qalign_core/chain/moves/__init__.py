"""Moves: how a proposal is made. A move is one small file; the target is the same for all."""
