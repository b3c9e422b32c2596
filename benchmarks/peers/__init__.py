"""Peers: one adapter a system, each run by the Python of a venv of its own; `produce.py` says what an adapter has."""
