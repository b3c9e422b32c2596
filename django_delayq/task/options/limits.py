"""Limit options: the limits under which the jobs of a task run, their cost, and what becomes of one that must wait."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Signature
from typing import Any, Literal, NamedTuple, get_args

from django_delayq.conf.limit_rules import MAX_BURST, Limits
from django_delayq.conf.named_options import is_whole_number
from django_delayq.conf.spelling import did_you_mean, one_of
from django_delayq.conf.validators import check_name
from django_delayq.exceptions import UnknownLimit
from django_delayq.job.job import LimitUse
from django_delayq.task.options.argument_function import ArgumentFunction, check_argument_function

#: What a limit is kept for, such as an account; or a function that returns it, given arguments of the job.
LimitValue = str | int | ArgumentFunction
#: The name of a limit, or its name and a value.
LimitName = str | tuple[str, LimitValue]
#: One limit or several.
LimitOption = LimitName | list[LimitName]
#: What becomes of a job that a limit keeps from beginning: it waits, or ends as dropped.
OnLimit = Literal["wait", "drop"]
#: More would make each claim of a job slow.
_MAX_LIMITS = 8
#: The cost is stored in two bytes.
_MAX_COST = min(MAX_BURST, 65_535)


class DeclaredLimit(NamedTuple):
    """A limit as an option names it."""

    name: str
    value: str | ArgumentFunction | None = None


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """The options `limit`, `cost` and `on_limit` of a task."""

    limits: tuple[DeclaredLimit, ...] = ()
    cost: int = 1
    drops: bool = False

    def changed(self, limit: Any = None, cost: Any = None, on_limit: Any = None) -> "LimitOptions":
        """Return the options with those that are given. Raises TypeError and ValueError."""
        if on_limit is not None and on_limit not in get_args(OnLimit):
            raise ValueError(f"on_limit must be {one_of(get_args(OnLimit))}, got {on_limit!r:.80}")
        if cost is not None:
            check_cost(cost)
        return LimitOptions(
            limits=self.limits if limit is None else _read(limit),
            cost=self.cost if cost is None else cost,
            drops=self.drops if on_limit is None else on_limit == "drop",
        )

    def check_functions(self, of: Signature) -> None:
        """Raise TypeError or ValueError if the function of a value does not fit a task with this signature."""
        for limit in self.limits:
            if callable(limit.value):
                check_argument_function(limit.value, of, name=f"the value of the limit {limit.name!r}")

    def uses(self, rules: Limits, compute: Callable[[str, ArgumentFunction], str | None]) -> Iterator[LimitUse]:
        """Yield the limits of one job, each once; `compute` calls the function of a value, and None leaves it out.

        Raises `UnknownLimit`, and ValueError for a cost that no rate allows.
        """
        found = set()
        for name, value in self.limits:
            check_limit(name, rules, cost=self.cost)
            if callable(value):
                value = compute(f"limit {name!r}", value)
                if value is None:
                    continue
            use = LimitUse(name, value)
            if use not in found:
                found.add(use)
                yield use


def check_cost(cost: Any) -> None:
    """Raise ValueError for a cost that no job can have."""
    if not is_whole_number(cost, _MAX_COST):
        raise ValueError(f"cost must be a whole number, 1 to {_MAX_COST:,}, got {cost!r:.80}")


def check_limit(name: str, rules: Limits, *, cost: int = 1) -> None:
    """Raise `UnknownLimit` for a limit that is not declared, ValueError for a cost that its rate never allows."""
    rule = rules.get(name)
    if rule is None:
        declared = did_you_mean(name, rules) or (f"; it has {', '.join(rules)}" if rules else "")
        raise UnknownLimit(f"the limit {name!r:.80} is not declared in DELAYQ['LIMITS']{declared}")
    if rule.interval_us is not None and cost > rule.burst:
        raise ValueError(
            f"cost={cost} is more than the burst of the limit {name!r}, which is {rule.burst}: such a job could never "
            f"begin; raise its burst in DELAYQ['LIMITS']"
        )


def read_limit(given: Any) -> LimitUse:
    """Return a limit whose value is known: its name, or a tuple of name and value. Raises TypeError and ValueError."""
    name, value = _read_one(given)
    if callable(value):
        raise TypeError(f"the value of the limit {name!r} must be text or a number here, not a function")
    return LimitUse(name, value)


def _read(option: Any) -> tuple[DeclaredLimit, ...]:
    limits = tuple(_read_one(each) for each in (option if isinstance(option, list) else [option]))
    if len(limits) > _MAX_LIMITS:
        raise ValueError(f"a job can have up to {_MAX_LIMITS} limits, got {len(limits)}")
    if len(set(limits)) < len(limits):
        raise ValueError("limit names the same limit twice; leave one out")
    return limits


def _read_one(given: Any) -> DeclaredLimit:
    name, value = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if not isinstance(name, str) or isinstance(given, Mapping) or (isinstance(given, tuple) and value is None):
        raise TypeError(
            f"limit must be the name of a limit, a tuple of the name and a value such as an account, or a list of "
            f"these, got {given!r:.80}"
        )
    check_name(name, name="the name of a limit")
    if value is not None and not callable(value):
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        value = check_name(str(value) if is_integer else value, name=f"the value of the limit {name!r}")
    return DeclaredLimit(name, value)


NO_LIMITS = LimitOptions()
