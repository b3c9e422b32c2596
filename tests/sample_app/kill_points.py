"""Kill points: places in the code at which a process kills itself.

DELAYQ_TEST_KILL_AT names one: `before user code`, or `heartbeat:2` for its second heartbeat. Processes import this
module by TASK_MODULES, before they run anything. Each point wraps one function of the package; without the variable,
nothing is wrapped.
"""

import os
import signal
from collections.abc import Callable
from itertools import count
from typing import Any

from django_delayq.store.claims import Claims
from django_delayq.store.promotion import Promotion
from django_delayq.task import outbox
from django_delayq.worker import execution
from django_delayq.worker.pools.threads import ThreadPool

Wrapped = Callable[..., Any]


def install(text: str) -> None:
    """Wrap the function of a point. Raises ValueError if the point does not exist."""
    name, _, number = text.partition(":")
    if name not in POINTS:
        raise ValueError(f"DELAYQ_TEST_KILL_AT={text!r}: there is no such point; known are {', '.join(POINTS)}")
    owner, attribute, before, counts = POINTS[name]
    setattr(owner, attribute, _deadly(getattr(owner, attribute), int(number or 1), before=before, counts=counts))


def _deadly(func: Wrapped, number: int, *, before: bool, counts: Callable[..., bool]) -> Wrapped:
    calls = count(1)

    def call(*args: Any, **kwargs: Any) -> Any:
        kills = counts(*args, **kwargs) and next(calls) == number
        if kills and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = func(*args, **kwargs)
        if kills:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call


def _always(*_: Any, **__: Any) -> bool:
    return True


def _has_outcomes(_: Any, request: Any) -> bool:
    # Bytes of acknowledged leases, dead letters, retries and kept results: all empty in a request without outcomes.
    acknowledged, _not_done, dead, retries, kept, *releases = request.args[9:]
    return bool(acknowledged or dead or retries or kept or releases)


#: Name -> owner of the function, its name, whether the process ends before it (else after it), which calls count.
POINTS: dict[str, tuple[Any, str, bool, Callable[..., bool]]] = {
    # The database has committed; the jobs that waited for the commit are sent next.
    "between commit and send": (outbox._PendingSends, "send", True, _always),
    # The reply is read, and the claim goes to the pool next.
    "after claim": (ThreadPool, "submit", True, _always),
    "before user code": (execution, "_call", True, _always),
    "after user code": (execution, "_call", False, _always),
    "before hand-in": (Claims, "settle_and_claim", True, _has_outcomes),
    # Redis ran the request and replied; the worker has not read the reply.
    "after hand-in": (Claims, "settle_and_claim", False, _has_outcomes),
    # Redis renewed the leases; the worker does not know it yet.
    "heartbeat": (Claims, "heartbeat", False, _always),
    # Jobs are promoted; the expired leases are read and reclaimed next.
    "between promote and reclaim": (Promotion, "read_expired_leases", True, _always),
    "before reclaim": (Promotion, "reclaim", True, _always),
    "after reclaim": (Promotion, "reclaim", False, _always),
}

if os.environ.get("DELAYQ_TEST_KILL_AT"):
    install(os.environ["DELAYQ_TEST_KILL_AT"])
