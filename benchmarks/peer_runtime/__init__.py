"""The code that every system's venv runs: the producer, the tasks, and the Django project."""
