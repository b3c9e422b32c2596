"""Recurring schedules: what a million of them take, how fast they are stored and planted, how late their jobs run."""
