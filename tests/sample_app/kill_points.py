"""Points: where a process kills itself, named by DELAYQ_TEST_KILL_AT: `before user code`, or `heartbeat:2` for the
second time there.

Named in TASK_MODULES, so that commands import it before they run anything. Each point wraps the one function of the
real code that stands there; without the variable nothing is touched.
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
    """Wrap the function at a point. Raises ValueError for one that is not known."""
    name, _, number = text.partition(":")
    if name not in POINTS:
        raise ValueError(f"DELAYQ_TEST_KILL_AT={text!r}: there is no such point; known are {', '.join(POINTS)}")
    place, attribute, strikes_first, picks = POINTS[name]
    setattr(place, attribute, _deadly(getattr(place, attribute), int(number or 1), strikes_first, picks))


def _deadly(func: Wrapped, number: int, strikes_first: bool, picks: Callable[..., bool]) -> Wrapped:
    times = count(1)

    def call(*args: Any, **kwargs: Any) -> Any:
        strikes = picks(*args, **kwargs) and next(times) == number
        if strikes and strikes_first:
            os.kill(os.getpid(), signal.SIGKILL)
        result = func(*args, **kwargs)
        if strikes:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call


def _always(*_: Any, **__: Any) -> bool:
    return True


def _hands_in(_: Any, exchange: Any) -> bool:
    # Bytes of acknowledged leases, dead letters, retries, kept results: what an exchange without outcomes has none of.
    acknowledged, dead, retries, kept, *releases = exchange.args[6:]
    return bool(acknowledged or dead or retries or kept or releases)


#: Name -> where the function is, its name, whether the process ends before it (else after it), which calls count.
POINTS: dict[str, tuple[Any, str, bool, Callable[..., bool]]] = {
    # The database has the transaction; what waited for it is sent next.
    "between commit and send": (outbox._PendingSends, "send", True, _always),
    # The answer is in, and the claim is on its way into the pool.
    "after claim": (ThreadPool, "submit", True, _always),
    "before user code": (execution, "_call", True, _always),
    "after user code": (execution, "_call", False, _always),
    "before hand-in": (Claims, "settle_and_claim", True, _hands_in),
    # Redis ran it and answered; nobody has looked at the answer.
    "after hand-in": (Claims, "settle_and_claim", False, _hands_in),
    # Redis pushed the leases on; the worker does not know yet.
    "heartbeat": (Claims, "heartbeat", False, _always),
    # Promoted, and told which leases lapsed: they are read next, and reclaimed.
    "between promote and reclaim": (Promotion, "read_expired_leases", True, _always),
    "before reclaim": (Promotion, "reclaim", True, _always),
    "after reclaim": (Promotion, "reclaim", False, _always),
}

if os.environ.get("DELAYQ_TEST_KILL_AT"):
    install(os.environ["DELAYQ_TEST_KILL_AT"])
