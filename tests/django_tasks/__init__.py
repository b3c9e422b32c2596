"""Tests of the backend of Django's own tasks framework."""
