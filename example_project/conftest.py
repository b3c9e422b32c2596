"""Fixtures of the example's tests: a private queue, players, and sales in any state.

These tests need the example's settings: `pytest example_project --ds=marketplace.settings`.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model

from django_delayq.testing import DelayQ

if getattr(django_settings, "ROOT_URLCONF", None) != "marketplace.urls":
    # The package's own suite has other settings, without the market.
    collect_ignore = ["tests"]


@pytest.fixture(autouse=True)
def market_settings(delayq: DelayQ, settings: Any) -> Any:
    """A private queue, and ten minutes between a reminder and its opening in any environment."""
    settings.MARKET_REMINDER_LEAD = 600.0
    # The default hasher is slow on purpose.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return settings


@pytest.fixture
def ann(db: None) -> Any:
    return get_user_model().objects.create_user("ann", password="ann")


@pytest.fixture
def ben(db: None) -> Any:
    return get_user_model().objects.create_user("ben", password="ben")


@pytest.fixture
def put_up(transactional_db: None, ann: Any) -> Callable[..., Any]:
    """Put up one of ann's items. Transactions really commit, because jobs are sent after the commit."""
    from market import sales  # needs the apps, which pytest-django loads after this file

    def put_up(
        *, opens_in: timedelta = timedelta(hours=1), open_for: timedelta = timedelta(hours=1), **item: Any
    ) -> Any:
        return sales.put_up(
            seller=ann, opens_in=opens_in, open_for=open_for, **{"name": "Lamp", "kind": "lantern", **item}
        )

    return put_up


@pytest.fixture
def put_up_open(put_up: Callable[..., Any]) -> Callable[..., Any]:
    """Put up an item and open it at once."""
    from market import tasks

    def put_up_open(**item: Any) -> Any:
        sale = put_up(opens_in=timedelta(0), **item)
        tasks.open_sale(sale.pk)
        sale.refresh_from_db()
        return sale

    return put_up_open
