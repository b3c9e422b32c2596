"""The report of a run: tables, charts, and docs/benchmarks.md, which shows them."""
