"""Adapters, one for each system, run by the Python of its venv. `peer_runtime/produce.py` describes an adapter."""
