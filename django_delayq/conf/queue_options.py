"""Queue options: what DELAYQ['QUEUES'] says of each declared queue."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django_delayq.conf.named_options import NamedOptions, NamedOptionsValidator, is_whole_number
from django_delayq.conf.validators import check_name

#: A tenant of the largest weight gets a hundred times the share of one of the smallest.
MAX_WEIGHT = 100
#: More waiting jobs than fit into any Redis.
_MAX_WAITING = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """The options of one queue."""

    #: Workers serve its tenants in turn; otherwise its jobs by their ranks.
    fair: bool = False
    #: Tenant -> its share of a fair queue, 1 to 100. Others, and the jobs without a tenant together, have 1.
    weights: Mapping[str, int] = field(default_factory=dict)
    #: Most jobs of one tenant that may wait; None: any number.
    max_waiting: int | None = None

    def weight_of(self, tenant: str | None) -> int:
        """Return the weight of a tenant (None: of the jobs without one); 0 if the queue is not fair."""
        return self.weights.get(tenant or "", 1) if self.fair else 0


#: The options of each declared queue.
Queues = NamedOptions[QueueOptions]
NO_OPTIONS, NO_QUEUES = QueueOptions(), Queues()


def _read(_name: str, label: str, options: Mapping[str, Any]) -> QueueOptions:
    fair, most = options.get("fair", False), options.get("max_waiting")
    if not isinstance(fair, bool):
        raise ValueError(f"{label}['fair'] must be True or False, got {fair!r:.80}")
    if most is not None and not is_whole_number(most, _MAX_WAITING):
        raise ValueError(
            f"{label}['max_waiting'] must be a whole number of jobs, 1 to {_MAX_WAITING:,}, or None for any number, "
            f"got {most!r:.80}"
        )
    weights = options.get("weights", {})
    if not isinstance(weights, Mapping):
        raise ValueError(f"{label}['weights'] must be a dict of tenants to whole numbers, got {type(weights).__name__}")
    if weights and not fair:
        raise ValueError(f"{label} has weights, which only a fair queue uses: add 'fair': True, or leave them out")
    for tenant, weight in weights.items():
        check_name(tenant, name=f"the tenant {tenant!r:.80} in {label}['weights']")
        if not is_whole_number(weight, MAX_WEIGHT):
            raise ValueError(
                f"{label}['weights'][{tenant!r:.80}] must be a whole number, 1 to {MAX_WEIGHT}, got {weight!r:.80}"
            )
    return QueueOptions(fair=fair, weights=dict(weights), max_waiting=most)


#: The check of the whole setting.
QUEUES = NamedOptionsValidator("queue names", ("fair", "weights", "max_waiting"), _read)
