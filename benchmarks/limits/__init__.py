"""Limits: how exactly rates and numbers of running jobs are kept, while workers are killed."""
