"""Pulse: whether the loops of this process go on."""

from collections.abc import Sequence

from django_delayq.processes.service import Service


class Pulse:
    """The loops of the services of a process. Its methods may be called in any thread."""

    def __init__(self, services: Sequence[Service], *, patience: float) -> None:
        """`services` may grow. A loop is stuck if it has not gone on for `patience` seconds."""
        self._services, self.patience = services, patience

    @property
    def is_stopping(self) -> bool:
        """Whether a loop has been stopped."""
        return any(service.stopped for service in list(self._services))

    @property
    def stuck(self) -> list[str]:
        """A sentence for each loop that is stuck."""
        return [
            f"{service.name} has not gone on for {service.overdue():,.0f} s."
            for service in list(self._services)
            if service.overdue() > self.patience
        ]
