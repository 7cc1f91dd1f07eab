"""From samples to one answer: rules, utilities, and how answers are read from texts."""
