"""The pages and panels of the app; every number comes from the core."""
