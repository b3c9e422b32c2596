"""Adapters of the systems in a Django project: as those in `benchmarks.peers`, with a task that uses the ORM.

`send` and `workers` are as there. `enqueue_in_view(number)` is the system's way to enqueue at the commit.
"""
