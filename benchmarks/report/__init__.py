"""The report of a run: tables, charts, and docs/reference/benchmarks.md, which shows them."""
