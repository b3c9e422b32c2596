"""Planned bugs of transitions: the state machine must catch each of them."""
