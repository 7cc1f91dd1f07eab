"""What is learned with the engine: sets, measures, exact worlds, training, reports, commands."""
