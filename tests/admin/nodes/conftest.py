"""Fixtures of pages over a cluster of three masters, which starts once for each module."""

from tests.servers.lost_master import masters, masters_in_use

__all__ = ["masters", "masters_in_use"]
