"""Recurring schedules: rules that make jobs again and again."""
