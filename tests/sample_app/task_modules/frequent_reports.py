"""No task: a process that knows this module reports ten times a second instead of every 15 s."""

from django_delayq.processes.reporter import ProcessReporter

ProcessReporter.every = 0.1
