"""Tasks of a project under test; they append to `calls`."""

from typing import Any

from django_delayq import DeadLetterNow, RetryLater, RetryPolicy, Snooze, current_job, delayed_task

calls: list[Any] = []


@delayed_task(queue="mail", priority=10)
def send_reminder(user_id: int, *, channel: str = "letter") -> None:
    """Record whom it reminds."""
    calls.append((user_id, channel))


@delayed_task
def close_sale(sale_id: int) -> None:
    """Close the sale, and remind its owner in an hour."""
    calls.append(sale_id)
    send_reminder.after(hours=1).enqueue(sale_id)


@delayed_task
def request_reminder(queue: str, number: int) -> None:
    """Enqueue a reminder in a queue."""
    send_reminder.using(queue=queue, priority=50).enqueue(number)


@delayed_task
async def ask_the_bank(payment_id: int) -> None:
    """Record the payment."""
    calls.append(payment_id)


@delayed_task(retry=RetryPolicy(max_attempts=3, base=2))
def charge(amount: int, *, fails: int = 1_000) -> None:
    """Fail the first attempts."""
    calls.append((amount, current_job().attempt))
    if current_job().attempt <= fails:
        raise ValueError(f"no money: {amount}")


@delayed_task
def wait_for_answer() -> None:
    """Request a retry in a minute at the first attempt."""
    calls.append(current_job().attempt)
    if current_job().attempt == 1:
        raise RetryLater(60)


@delayed_task
def poll(answered_after: int) -> None:
    """Put itself off until it ran so many times."""
    if len(calls) < answered_after:
        calls.append(current_job().attempt)
        raise Snooze(minutes=5)
    calls.append(current_job().attempt)


@delayed_task
def give_up() -> None:
    """Become a dead letter."""
    raise DeadLetterNow("no use")


@delayed_task
def tick() -> None:
    """Enqueue itself forever."""
    calls.append(len(calls))
    tick.after(minutes=1).enqueue()


@delayed_task(timeout=0.05, retry=RetryPolicy(max_attempts=1))
def run_on() -> None:
    """Run until its time limit."""
    while True:
        pass


@delayed_task(sensitive=("card",))
def pay(card: str) -> None:
    """Record the card."""
    calls.append(card)
