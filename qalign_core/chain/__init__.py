"""The chain of the paper: two formulas, a step, a loop; it never knows a model."""
