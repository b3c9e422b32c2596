"""RESP splitter: splits a stream of Redis's protocol (RESP2) into whole values, at any chunk boundaries."""

_LINE_END = b"\r\n"


class RespSplitter:
    """Splits one direction of one connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        #: Elements that the current value still lacks. An array adds its length, so nested arrays need no stack.
        self._missing = 1

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes, and return the raw bytes of each value that is complete now."""
        self._buffer += data
        whole: list[bytes] = []
        while self._skip_element():
            if not self._missing:
                whole.append(bytes(self._buffer[: self._at]))
                del self._buffer[: self._at]
                self._at, self._missing = 0, 1
        return whole

    def _skip_element(self) -> bool:
        """Skip the next element, a string or an array's header. Returns False if it is incomplete."""
        line_end = self._buffer.find(_LINE_END, self._at)
        if line_end < 0:
            return False
        kind, text, end = self._buffer[self._at : self._at + 1], self._buffer[self._at + 1 : line_end], line_end + 2
        # A null has the size -1 and no contents.
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
    """Return the first word of a request in capitals. For a script, its SHA follows."""
    parts = request.split(_LINE_END, 5)
    words = parts[2:5:2] if request.startswith(b"*") else parts[0].split()
    command = words[0].decode(errors="replace").upper()
    return f"{command} {words[1].decode()}" if command == "EVALSHA" else command
