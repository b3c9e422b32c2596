"""The tests; a package so that `tests.settings` and what tests share can be imported by name."""
