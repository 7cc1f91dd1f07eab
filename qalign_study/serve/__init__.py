"""Models that answer as OpenAI's API does, and what guards a server."""
