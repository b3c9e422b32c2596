"""Retry: the retry policy of a job or task in plain words, and as data.

The words name the longest waits that the policy itself computes, so they never differ from what a worker does.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, cast

from django.utils.translation import gettext as _

from django_delayq.display.text import printable, short, span_text
from django_delayq.job.retry import Exceptions, RetryPolicy
from django_delayq.templatetags.delayq import grouped

#: Longest list of waits; of a longer one the first three and the last are named.
_LISTED = 6
#: Number of a wait after which no random one grows: `base` has doubled 62 times.
_LONGEST = 63


def retry_text(policy: RetryPolicy, *, brief: bool = False) -> str:
    """Return `up to 4 attempts, after 5 s, 1 min, 10 min; retries only shop.errors.Busy; fails at once on ValueError`.

    `brief` is for a table: `after 5 s, …, 10 min; only Busy; not ValueError`, without the number of attempts.
    """
    number = policy.max_attempts
    if number == 1:
        # No rule matters: not even a crash leads to another attempt.
        return _("no retry") if brief else _("1 attempt, no retry")
    count = _("tried forever") if number is None else _("up to %s attempts") % grouped(number)
    first = _waits(policy, brief) if brief else f"{count}, {_waits(policy, brief)}"
    return "; ".join([first, *_rules(policy, brief)])


def retry_facts(policy: RetryPolicy) -> dict[str, Any]:
    """Return the fields of a policy as JSON has them, with times in seconds."""
    base, cap = cast(timedelta, policy.base), cast(timedelta, policy.cap)
    return {
        "max_attempts": policy.max_attempts,
        "delays": [cast(timedelta, delay).total_seconds() for delay in policy.delays],
        "base": base.total_seconds(),
        "cap": cap.total_seconds(),
        "on_error": policy.on_error,
        "retry_on": list(cast("tuple[str, ...]", policy.retry_on)),
        "dead_on": list(cast("tuple[str, ...]", policy.dead_on)),
    }


def _waits(policy: RetryPolicy, brief: bool) -> str:
    number = _LONGEST + 1 if policy.max_attempts is None else policy.max_attempts
    # A wait is drawn from 0 to this one, unless the policy has exact delays.
    waits = [policy.delay_us(ended, 1) for ended in range(1, min(number - 1, len(policy.delays) or _LONGEST) + 1)]
    repeats = policy.max_attempts is None or number - 1 > len(waits)
    while len(waits) > 1 and waits[-1] == waits[-2]:
        waits.pop()
        repeats = True
    if not any(waits):
        return _("at once")
    spans = list(map(span_text, waits))
    listed = 2 if brief else _LISTED
    if len(spans) > listed:
        spans[listed // 2 : -1] = ["…"]
    if repeats:
        spans[-1] = (_("then %s each time") if len(spans) > 1 else _("%s each time")) % spans[-1]
    return (_("after %s") if policy.delays else _("after random delays of up to %s")) % ", ".join(spans)


def _rules(policy: RetryPolicy, brief: bool) -> Iterator[str]:
    """Yield what the rules say of exceptions; nothing if each leads to another attempt."""
    if policy.retry_on:
        yield (_("only %s") if brief else _("retries only %s")) % _names(policy.retry_on, brief)
    elif not policy.on_error:
        # `dead_on` then has no effect.
        yield _("no exception") if brief else _("retries no exception, only crashes, lost leases and RetryLater")
        return
    if policy.dead_on:
        yield (_("not %s") if brief else _("fails at once on %s")) % _names(policy.dead_on, brief)


def _names(paths: Exceptions, brief: bool) -> str:
    return ", ".join(
        printable(short(path) if brief else path.removeprefix("builtins.")) for path in cast(Iterable[str], paths)
    )
