"""Benchmarks: the figures the README gives, each by one command; ratios against a floor in the same run."""
