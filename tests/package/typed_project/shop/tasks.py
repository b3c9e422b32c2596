"""Tasks with full types."""

from datetime import timedelta

from django_delayq import RetryLater, RetryPolicy, Snooze, current_job, delayed_task


@delayed_task
def close_bids(sale_id: int) -> None:
    """A plain one."""


@delayed_task(queue="mail", priority=10, retry=RetryPolicy(max_attempts=5), timeout=timedelta(seconds=30))
def send_reminder(user_id: int, *, text: str = "soon") -> str:
    """One with options, a default and a result."""
    job = current_job()
    if job is not None and job.recovered:
        raise RetryLater(60)
    return f"{user_id}: {text}"


@delayed_task(every=timedelta(hours=1), key=lambda payment_id: f"payment:{payment_id}")
async def ask_the_bank(payment_id: str = "all") -> bool:
    """A coroutine."""
    raise Snooze(minutes=1)
