"""Systemd: tells systemd that a service is ready, that it is alive, and that it stops. Type=notify, WatchdogSec=."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress

from django_delayq.clock import SECOND_US


class Systemd:
    """The notifications to the systemd that started this process; without one, nothing is sent."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        is_mine = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        period = environ.get("WATCHDOG_USEC", "")
        #: Seconds within which systemd expects to hear that the process is alive; 0: it does not.
        self.watchdog = int(period) / SECOND_US if self._address and is_mine and period.isdecimal() else 0.0

    def ready(self) -> None:
        """Say that the process serves."""
        self._send("READY=1")

    def alive(self) -> None:
        """Say that the process is alive."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the process stops."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        # A name that begins with @ is in the abstract namespace.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        # Who started the process may be gone: that must not end it.
        # If nobody reads what comes, it must neither wait: a process that cannot say that it stops has to stop.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            sock.sendto(text.encode(), address)
