"""Options: what a body stores of a job besides its head and its arguments.

Each option is left out if it has its default. A reader ignores those that it does not know.
"""

from datetime import timedelta
from types import NoneType
from typing import Any

from django_delayq.clock import SECOND_US
from django_delayq.job.job import DELAYED_TASK, DJANGO_TASK, Expiry, Job, LimitUse, Occurrence
from django_delayq.job.retry import LONGEST_DELAY, MAX_ATTEMPTS, RetryPolicy
from django_delayq.job.value import has_type

#: Options that are stored as they are: their field, and their type in JSON.
_TYPED = (("c", "context", dict), ("n", "tenant", str), ("l", "limits", list), ("o", "occurrence", list))
#: The result_ttl_us that format 1 leaves out of jobs that keep their result.
_DEFAULT_TTL_US = 86_400_000_000


def options_of(job: Job) -> dict[str, Any]:
    """Return the options of a job."""
    options: dict[str, Any] = {}
    # Mostly both are one object: then no fields need to be compared.
    if job.retry is not job.kind.retry and job.retry != job.kind.retry:
        base, cap = map(_us, (job.retry.base, job.retry.cap))
        # Four numbers, which every reader of format 1 knows; `p` is ignored by those before 0.1.
        number = MAX_ATTEMPTS if job.retry.max_attempts is None else job.retry.max_attempts
        options["r"] = [number, base, cap, int(job.retry.on_error)]
        if rules := _retry_rules(job.retry):
            options["p"] = rules
    if job.timeout_us is not None:
        options["t"] = job.timeout_us
    if job.hard_timeout_us is not None:
        options["h"] = job.hard_timeout_us
    if job.key is not None:
        options["k"] = job.key
    if job.result_ttl_us not in (None, _DEFAULT_TTL_US):
        options["s"] = job.result_ttl_us
    if job.run_after_us is not None:
        options["a"] = job.run_after_us
    if job.backend is not None:
        options["b"] = job.backend
    if job.expiry is not None:
        options["e"] = expiry_option(job.expiry)
    if job.context:
        options["c"] = job.context
    if job.tenant is not None:
        options["n"] = job.tenant
    if job.limits:
        options["l"] = job.limits
    if job.occurrence is not None:
        name, moment_us = job.occurrence
        options["o"] = (name, None if moment_us is None else moment_us // SECOND_US)
    return options


def read_options(options: dict[str, Any], *, keeps_result: bool, django: bool, expires: bool) -> dict[str, Any]:
    """Return the fields of a job with these options and flags; those that have their default may be left out.

    If an option is damaged, raises ValueError, or another error of its reader.
    """
    fields = _read_common(options) | _read_typed(options) if options else {}
    if keeps_result or django:
        fields |= _read_more(options, keeps_result=keeps_result, django=django)
    if expires and "e" in options:
        fields["expiry"] = read_expiry(options["e"])
    return fields


def expiry_option(expiry: Expiry) -> list[int | None]:
    """Return the option of an expiry."""
    return [expiry.moment_us, expiry.span_us, int(expiry.dead)]


def read_expiry(option: Any) -> Expiry:
    """Return the expiry of an option. Raises ValueError, or another error of its reader, if it is damaged."""
    moment_us, span_us, dead = option
    if not has_type(moment_us, int) or not (span_us is None or has_type(span_us, int)):
        raise ValueError("an expiry must be whole microseconds")
    return Expiry(moment_us=moment_us, span_us=span_us, dead=bool(dead))


def _retry_rules(policy: RetryPolicy) -> dict[str, Any]:
    """Return what the four numbers of a policy leave out."""
    rules: dict[str, Any] = {"forever": 1} if policy.max_attempts is None else {}
    if policy.delays:
        rules["delays"] = list(map(_us, policy.delays))
    for name in ("retry_on", "dead_on"):
        if paths := getattr(policy, name):
            rules[name] = list(paths)
    return rules


def _read_retry_rules(rules: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a policy that `_retry_rules` wrote; others are those of a later release."""
    fields: dict[str, Any] = {name: rules[name] for name in ("retry_on", "dead_on") if name in rules}
    if "delays" in rules:
        # Jobs of an earlier release may have longer ones, which it accepted.
        fields["delays"] = [min(timedelta(microseconds=us), LONGEST_DELAY) for us in rules["delays"]]
    return fields | {"max_attempts": None} if rules.get("forever") else fields


def _read_common(options: dict[str, Any]) -> dict[str, Any]:
    retry = DELAYED_TASK.retry
    if "r" in options:
        max_attempts, base, cap, on_error = options["r"]
        if max_attempts is None:
            raise ValueError("a number of attempts must be a whole number")
        fields = {
            "max_attempts": max_attempts,
            "base": timedelta(microseconds=base),
            "cap": timedelta(microseconds=cap),
            "on_error": bool(on_error),
        }
        retry = RetryPolicy(**(fields | _read_retry_rules(options["p"]) if "p" in options else fields))
    timeout_us, hard_timeout_us, key = options.get("t"), options.get("h"), options.get("k")
    for number in (timeout_us, hard_timeout_us):
        # The worker converts it to seconds as a float, so it must not overflow.
        if number is not None and (type(number) is not int or not 0 <= number < 2**1000):
            raise ValueError("a time limit must be whole microseconds")
    if key is not None and type(key) is not str:
        raise ValueError("a key must be text")
    return {"retry": retry, "timeout_us": timeout_us, "hard_timeout_us": hard_timeout_us, "key": key}


def _read_more(options: dict[str, Any], *, keeps_result: bool, django: bool) -> dict[str, Any]:
    """Return the fields that only jobs with a result, or of Django's @task, have."""
    ttl_us = options.get("s", _DEFAULT_TTL_US) if keeps_result else None
    run_after_us, backend = options.get("a"), options.get("b")
    for number in (ttl_us, run_after_us):
        if number is not None and not has_type(number, int):
            raise ValueError("a time must be whole microseconds")
    if backend is not None and type(backend) is not str:
        raise ValueError("an alias must be text")
    more = {"django": django, "result_ttl_us": ttl_us, "run_after_us": run_after_us, "backend": backend}
    return more | {"retry": DJANGO_TASK.retry} if django and "r" not in options else more


def _read_typed(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields whose options are stored as they are."""
    fields = {}
    for option, name, kind in _TYPED:
        if option in options:
            if type(options[option]) is not kind:
                raise ValueError(f"the option {option} must be of the type {kind.__name__}")
            fields[name] = options[option]
    if "limits" in fields:
        fields["limits"] = tuple(LimitUse(name, value) for name, value in fields["limits"])
        if any(type(name) is not str or type(value) not in (str, NoneType) for name, value in fields["limits"]):
            raise ValueError("the name and the value of a limit must be text")
    if "occurrence" in fields:
        name, moment = fields["occurrence"]
        if type(name) is not str or not (moment is None or has_type(moment, int)):
            raise ValueError("an occurrence must be a name and whole seconds")
        fields["occurrence"] = Occurrence(name, None if moment is None else moment * SECOND_US)
    return fields


def _us(delay: Any) -> int:
    return int(delay // timedelta(microseconds=1))
