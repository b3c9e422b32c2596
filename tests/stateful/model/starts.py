"""Starts: when jobs began under each limit, and the two promises that follow from its rule."""

from dataclasses import dataclass, field

from django_delayq.conf.limit_rules import LimitRule

#: The time of a limit is a float, exact to a quarter of a microsecond at each start.
INEXACT_US = 0.25


@dataclass
class Starts:
    """The starts since the rules changed, without those that a person ordered and those that did not happen."""

    began: dict[bytes, list[tuple[int, int, bytes]]] = field(default_factory=dict)

    def check(self, limit: bytes, rule: LimitRule, *, at_us: int, cost: int, lease: bytes, slots: int) -> None:
        """Record a start; within any time no more begin than the rule says, and no more run than it says."""
        assert rule.max_running is None or slots <= rule.max_running, f"{slots} jobs run under {rule}"
        began = self.began.setdefault(limit, [])
        began.append((at_us, cost, lease))
        if rule.interval_us is None:
            return
        for since_us, _, _ in began:
            costs = [each for moment, each, _ in began if moment >= since_us]
            total, inexact_us = sum(costs), 1 + INEXACT_US * len(costs)
            most = rule.burst + (at_us - since_us + inexact_us) / rule.interval_us
            assert total <= most, f"{total} jobs begin in {at_us - since_us} us under {rule}"

    def forget(self, limit: bytes, lease: bytes) -> None:
        """Drop the start of a claim whose job did not begin.

        A person's order ignores the limit, and the part of its cost that is above the burst is forgotten: if it is
        given back, one more may begin.
        """
        began = self.began.get(limit, [])
        if any(start[2] == lease for start in began):
            self.began[limit] = [start for start in began if start[2] != lease]
        else:
            self.began.pop(limit, None)
