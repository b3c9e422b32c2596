"""Benchmarks: this project beside others, `python -m benchmarks`, and what the admin costs, `admin_pages`."""
