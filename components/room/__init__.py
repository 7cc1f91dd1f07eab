"""A room: a class in which everybody has a chain, and all of them together are the sampler."""
