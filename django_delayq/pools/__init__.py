"""The room that decides how jobs run in parallel."""
