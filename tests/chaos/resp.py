"""Values: cut a stream of Redis's protocol (RESP2) into whole values, however it arrives."""

_LINE_END = b"\r\n"


class Values:
    """One direction of one connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        #: Elements still missing to the current value. An array adds as many as it has: nested ones need no stack.
        self._missing = 1

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes in; return the values that are whole by now, as they came."""
        self._buffer += data
        whole: list[bytes] = []
        while self._pass_element():
            if not self._missing:
                whole.append(bytes(self._buffer[: self._at]))
                del self._buffer[: self._at]
                self._at, self._missing = 0, 1
        return whole

    def _pass_element(self) -> bool:
        """Step over the next element, a text or an array's head; False where it is not whole yet."""
        line_end = self._buffer.find(_LINE_END, self._at)
        if line_end < 0:
            return False
        kind, text, end = self._buffer[self._at : self._at + 1], self._buffer[self._at + 1 : line_end], line_end + 2
        # A null has the size -1, and nothing follows.
        if kind == b"$" and int(text) >= 0:
            end += int(text) + 2
        if end > len(self._buffer):
            return False
        if kind == b"*":
            self._missing += max(0, int(text))
        self._missing -= 1
        self._at = end
        return True


def command_of(request: bytes) -> str:
    """Return the first word of a request, in capitals; of a script's call also its SHA."""
    parts = request.split(_LINE_END, 5)
    words = parts[2:5:2] if request.startswith(b"*") else parts[0].split()
    command = words[0].decode(errors="replace").upper()
    return f"{command} {words[1].decode()}" if command == "EVALSHA" else command
