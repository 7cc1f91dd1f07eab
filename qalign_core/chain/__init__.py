"""The Markov chain of the paper: moves, the acceptance rule, one step, and the loop over steps."""
