"""Tests of `django_delayq.testing`, which projects use in their own tests."""
