"""What a visitor's run goes through: settings, limits, models on offer, queue, endpoints."""
