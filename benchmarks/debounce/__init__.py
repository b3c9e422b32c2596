"""Debounce: many producers that call the same keys, each of which must run once and on time."""
