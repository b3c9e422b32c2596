"""Benchmarks: this project compared with others (`python -m benchmarks`), the admin's cost, debounced calls."""
