"""Tenant: the tenant of the jobs that a piece of code enqueues."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django_delayq.conf.validators import check_name

#: The tenant that `tenant()` has set, read by each enqueue.
current_tenant: ContextVar[str | None] = ContextVar("current_tenant", default=None)


@contextmanager
def tenant(name: str | None) -> Iterator[None]:
    """Give the jobs that the block enqueues this tenant, unless their task or call names one; None: no tenant.

    The name is text of 1 to 200 bytes. Threads that the block starts do not inherit it; coroutines do. Raises
    ValueError for another name.
    """
    token = current_tenant.set(None if name is None else check_name(name, name="tenant"))
    try:
        yield
    finally:
        current_tenant.reset(token)
