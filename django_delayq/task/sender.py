"""Sending: jobs go to their shards, in chunks; what was not accepted is told, and can be sent again."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from django_delayq.exceptions import KeyHeld, StoreError
from django_delayq.task.batch import in_batches
from django_delayq.task.delivery import Delivery
from django_delayq.task.handle import JobHandle

#: Called with the jobs that were sent, after their signals; for tests.
on_sent: list[Callable[[Sequence[JobHandle]], object]] = []


def send(handles: Sequence[JobHandle]) -> int:
    """Send jobs in chunks of up to 250 and 1 MiB, each atomic; returns how many were accepted.

    Raises `StoreError`, which names the unsent jobs and offers `resend()`, and `KeyHeld`; both tell how many were
    accepted before.
    """
    # Each once: a second time it has no draft any more, and receipts would count on past it.
    unsent = list(dict.fromkeys(handle for handle in handles if handle.draft is not None))
    with Delivery(partial(_tell, unsent)) as delivery:
        delivery.take(unsent)
    for told in on_sent:
        told(unsent)
    return delivery.accepted


def stream(handles: Iterable[JobHandle], on_progress: Callable[[int], Any], *, check: Callable[[], None]) -> int:
    """Send jobs as they are made; returns how many were accepted, and tells so after each chunk.

    `check` is called before each is sent. Errors are those of `send()`, and what `check`, `on_progress` and making the
    jobs raise; chunks sent before are accepted first, and told of.
    """
    # Of what was made, all but these is accepted: one chunk is on its way while the next is made.
    recent: deque[list[JobHandle]] = deque(maxlen=2)

    def tell(error: StoreError | KeyHeld, accepted: int) -> None:
        _tell([handle for chunk in recent for handle in chunk], error, accepted)

    def made() -> Iterator[list[JobHandle]]:
        try:
            for chunk in in_batches(handles):
                check()
                recent.append(chunk)
                yield chunk
        except Exception:
            # What was on its way meanwhile is told of first.
            report(delivery.finish())
            raise

    def report(accepted: list[JobHandle]) -> None:
        if accepted:
            for told in on_sent:
                told(accepted)
            on_progress(delivery.accepted)

    delivery = Delivery(tell)
    try:
        with delivery:
            for chunk in made():
                report(delivery.take(dict.fromkeys(chunk)))
            report(delivery.finish())
    except Exception as error:
        if error is not delivery.failure:
            error.add_note(f"enqueue_many() had accepted {delivery.accepted} jobs by then.")
        raise
    return delivery.accepted


def _tell(handles: Sequence[JobHandle], error: StoreError | KeyHeld, accepted: int) -> None:
    error.accepted = accepted
    if isinstance(error, StoreError):
        name_unsent(error, handles, accepted)


def name_unsent(error: StoreError, handles: Sequence[JobHandle], accepted: int) -> None:
    """Let an error name those of the jobs that were not (surely) sent, and send them again."""
    left = [handle for handle in handles if handle.draft is not None]
    # An earlier call may have stored them, whatever became of this one.
    error.maybe_accepted = error.maybe_accepted or any(handle.maybe_sent for handle in left)
    error.offer_resend(left, partial(send, left))
    names = ", ".join(handle.id for handle in left[:5])
    named = names if len(left) <= 5 else f"{names} and {len(left) - 5} more"
    error.add_note(f"Accepted before: {accepted}. Not (surely) sent: {named}; error.resend() sends the same ids.")
