"""The tasks of a shop, for pages with realistic jobs."""

from django_delayq import RetryPolicy, delayed_task


@delayed_task(
    name="billing.tasks.send_invoice", queue="email", timeout=30, retry=RetryPolicy(max_attempts=5, base=2, cap=3600)
)
def send_invoice(order: int, lang: str = "en", token: str = "") -> None:
    """Send a customer the bill."""


@delayed_task(name="crm.tasks.sync_customer", retry=RetryPolicy(max_attempts=8, base=5, cap=7200))
def sync_customer(customer: str, password: str = "") -> None:
    """Update the other system."""


@delayed_task(name="market.tasks.close_auction", priority=10, timeout=10)
def close_auction(auction: int) -> None:
    """Let the best bid win."""


@delayed_task(name="stats.tasks.build_report", queue="reports", timeout=600)
def build_report(kind: str, day: str) -> None:
    """Add up a day."""
