"""How the embedded models are made: from nothing, on two CPU cores, with generated text only."""
