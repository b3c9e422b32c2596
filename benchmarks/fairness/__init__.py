"""Fairness between the tenants of a queue: who waits for whom, shares by weight, and what tenants cost."""
