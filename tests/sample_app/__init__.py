"""An installed app like a project's own: workers discover the tasks of its `tasks.py`."""
