"""Modules that a process knows by TASK_MODULES alone."""
