"""Tests of what a task does to the database connections of the thread that runs it."""
