"""Wrong uses: mypy reports each of them. A comment that has nothing to ignore is an error, too."""

from django_delayq import RetryPolicy, delayed_task, get_job, queue
from shop.tasks import ask_the_bank, close_bids, send_reminder


def wrong_arguments() -> None:
    """The signature of the function is that of enqueue()."""
    close_bids.enqueue("42")  # type: ignore[arg-type]
    close_bids.enqueue()  # type: ignore[call-arg]
    close_bids.enqueue(42, 43)  # type: ignore[call-arg]
    close_bids.enqueue(sale=42)  # type: ignore[call-arg]
    close_bids.after(minutes=10).enqueue("42")  # type: ignore[arg-type]
    send_reminder.using(queue="bulk").enqueue(7, text=8)  # type: ignore[arg-type]
    send_reminder("7")  # type: ignore[arg-type]


async def wrong_arguments_in_async_code() -> None:
    """The signature of the function is that of aenqueue(), too."""
    await ask_the_bank.aenqueue(7)  # type: ignore[arg-type]


def wrong_options() -> None:
    """Options have types and names."""
    close_bids.at("tomorrow")  # type: ignore[arg-type]
    close_bids.after(minute=10)  # type: ignore[call-arg]
    close_bids.using(delay="600")  # type: ignore[arg-type]
    close_bids.using(unique="never")  # type: ignore[arg-type]
    close_bids.using(eta=600)  # type: ignore[call-arg]
    RetryPolicy(max_attempts="5")  # type: ignore[arg-type]


@delayed_task(queue=5)  # type: ignore[call-overload,untyped-decorator]
def wrong_queue() -> None:
    """The name of a queue is text."""


def wrong_handles() -> None:
    """A handle is not a result, and there may be none."""
    text: str = send_reminder.enqueue(7)  # type: ignore[assignment]
    get_job(text).cancel()  # type: ignore[union-attr]
    close_bids.enqueue(1).id = "2"  # type: ignore[misc]
    queue(1)  # type: ignore[arg-type]
