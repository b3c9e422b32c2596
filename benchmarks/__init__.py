"""Benchmarks: this project compared with others (`python -m benchmarks`), and the admin's cost (`admin_pages`)."""
