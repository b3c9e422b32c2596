"""The work of every system's project: the job, the view, and the tables."""

from collections.abc import Callable
from typing import Any

from django.core.management import call_command
from django.db import transaction

from benchmarks.django_jobs.models import Order, Product, Sale
from benchmarks.peer_runtime import work

PRODUCTS = 1_000


def sell(number: int) -> None:
    """Read one row, write one, and count the run."""
    product = Product.objects.get(pk=number % PRODUCTS + 1)
    Sale.objects.create(job=number, cents=product.cents)
    work.noop(number, *work.PAYLOAD)


def handle_request(number: int, enqueue: Callable[[int], Any]) -> None:
    """Write one row and enqueue one job in a transaction, as a view does."""
    with transaction.atomic():
        Order.objects.create(number=number)
        enqueue(number)


def prepare() -> None:
    """Create the tables, and the rows that jobs read. A repeated call changes nothing."""
    call_command("migrate", verbosity=0, run_syncdb=True)
    products = (Product(pk=number, cents=number) for number in range(1, PRODUCTS + 1))
    Product.objects.bulk_create(products, ignore_conflicts=True)
