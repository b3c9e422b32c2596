"""An installed app like a user's own: its `tasks.py` is what workers discover."""
