"""Elsewhere: the stores of other aliases in TASKS, whose jobs these pages do not show. Asks Redis nothing."""

from typing import NamedTuple

from django.core.exceptions import ImproperlyConfigured

from django_delayq.admin.arguments import printable
from django_delayq.conf.settings import get_config, separate_aliases


class OtherStore(NamedTuple):
    """One alias whose jobs stand elsewhere, in words."""

    alias: str
    #: Where its Redis is, without user and password, and the prefix of its keys there.
    display_url: str = ""
    prefix: str = ""
    #: Why its settings cannot be read, in place of the two.
    problem: str = ""


def other_stores() -> list[OtherStore]:
    """Return the stores that are not the one on these pages."""
    shown = get_config()
    found = []
    for alias in separate_aliases():
        try:
            config = get_config(alias)
        except ImproperlyConfigured as error:
            found.append(OtherStore(printable(alias), problem=printable(str(error))))
            continue
        # By mistake an alias may name the very same store; `manage.py check` reports it.
        if (config.redis, config.prefix) != (shown.redis, shown.prefix):
            found.append(OtherStore(printable(alias), printable(config.redis.display_url), printable(config.prefix)))
    return found
