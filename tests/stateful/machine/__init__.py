"""The rules of the state machine, and the actors that carry them out."""
