"""A Django project whose jobs use the ORM, on PostgreSQL, once for each system.

The Python of a system's venv runs it all but `scenarios.py` and `systems.py`.
"""
