"""The module in which Django's task systems look for the tasks of an app: it imports those of the measured system."""

import os
from importlib import import_module

import_module(f"benchmarks.django_jobs.peers.{os.environ['BENCH_SYSTEM']}")
