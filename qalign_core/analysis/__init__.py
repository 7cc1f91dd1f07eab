"""What draws tell: convergence, what beta does, and the four methods at one budget."""
