"""Systemd: notifies systemd that a service is ready, alive or stopping, for Type=notify and WatchdogSec=."""

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
        #: Seconds within which systemd expects a notification that the process is alive; 0: it expects none.
        self.watchdog = int(period) / SECOND_US if self._address and is_mine and period.isdecimal() else 0.0

    def ready(self) -> None:
        """Notify systemd that the process is ready."""
        self._send("READY=1")

    def alive(self) -> None:
        """Notify systemd that the process is alive."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Notify systemd that the process is stopping."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        # A name that begins with @ is in the abstract namespace.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        # The receiver may be gone, which must not end this process.
        # Without blocking: if nobody reads the socket, the process still has to stop.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            sock.sendto(text.encode(), address)
