"""State machine: all transitions in random order on a real Redis, compared with a model in plain Python."""
