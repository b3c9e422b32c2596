"""Tests of what we give to the tests of projects."""
