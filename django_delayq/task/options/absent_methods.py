"""Absent methods: the methods that tasks of other task queues have, with what to write here."""

from typing import Any, NoReturn


class AbsentMethod:
    """A method that tasks of other task queues have. Reading it is an AttributeError that says what to write here.

    Not `__getattr__()`: Django reads attributes that tasks lack for each signal.
    """

    def __init__(self, instead: str) -> None:
        self._instead = instead

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, task: Any, owner: type) -> NoReturn:
        of = "a task" if task is None else f"the task {task.name}"
        raise AttributeError(f"{of} has no {self._name}(): {self._instead}", name=self._name, obj=task)


_NO_CHAINS = "write task.job(…) for enqueue_many(); instead of a chain, a task enqueues the next one at its end"


class AbsentMethods:
    """Methods that tasks of other task queues have, and tasks of `@delayed_task` do not."""

    delay = AbsentMethod("write task.enqueue(…) with the same arguments, or task.after(60).enqueue(…) for a delay")
    apply_async = AbsentMethod("write task.using(delay=60, queue=…, expires=…).enqueue(*args, **kwargs), as you need")
    send = AbsentMethod("write task.enqueue(…) with the same arguments")
    schedule = AbsentMethod("write task.after(60).enqueue(…), or task.at(moment).enqueue(…)")
    delay_on_commit = AbsentMethod("write task.enqueue(…): inside a transaction the job is sent after the commit")
    apply = AbsentMethod("write task(…), which calls the function here and now")
    s = AbsentMethod(_NO_CHAINS)
    si = AbsentMethod(_NO_CHAINS)
