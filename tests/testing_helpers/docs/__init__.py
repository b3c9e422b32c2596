"""Tests of the code that the pages show to projects: it runs, in a project of its own."""
