"""The state machine: every transition in random order on a real Redis, against a model in plain Python."""
