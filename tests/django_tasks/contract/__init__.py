"""Tests of the requirements that Django sets for a backend of tasks, by their numbers."""
