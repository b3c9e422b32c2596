"""Error text: where a traceback has the text of its own exception, and how an error is shortened to be stored.

A traceback begins with the exceptions behind its own and ends with its own, or with those inside a group.
"""

import json
import re

#: What Python writes between the exceptions of a chain, and around the exceptions of a group.
_LINK = re.compile(
    r"^(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):\n$",
    re.MULTILINE,
)
_GROUP_END = re.compile(r"^  \+-", re.MULTILINE)
#: The part of the limit that the beginning of a lost message gets.
_HEAD_SHARE = 8


def find_message(error: str, exception: str) -> tuple[int, int, int] | None:
    """Return where the text of an exception is: the start of its class, of its message, and the end of the message.

    `exception` is the class, "module.qualname". Returns None for a text that does not name it: one without a traceback,
    or one whose beginning was cut off.
    """
    name = re.escape(exception.removeprefix("builtins.").removeprefix("__main__."))
    # Python writes "module.Class: message" after the frames, and the margin before each line of a group.
    head = re.compile(rf"^(  \| )?{name}(?:: |\n|\Z)", re.MULTILINE)
    # The exceptions behind it come first. A message may have any lines, so the first one with the class counts.
    searched = len(error)
    for start in reversed([0, *(link.end() for link in _LINK.finditer(error))]):
        if found := head.search(error, start, searched):
            end = _GROUP_END.search(error, found.end()) if found[1] else None
            return found.start(), found.end(), end.start() if end else len(error)
        searched = start
    return None


def cut_error(error: str, limit: int, *, exception: str) -> str:
    """Shorten an error to `limit` bytes of JSON: the end of a traceback says most, as the exception itself is there.

    If its class is not in that end, because its message is long or it is a group, the text begins with both.
    """
    error = str(error)
    cut = _end_of(error, limit)
    if cut == error or not exception:
        return cut
    found = find_message(error, exception)
    # The line break before the class must be kept, too: "…ValueError: no" does not name it.
    if found is None or found[0] > len(error) - len(cut) + 1:
        return cut
    start, after, end = found
    head = f"…\n{error[start:after]}{start_of(error[after:end], limit // _HEAD_SHARE)}\n"
    if error.startswith("  | ", start):
        # By this line a reader finds the end of the message of a group.
        head += "  +-…\n"
    return head + _end_of(error, limit - size) if (size := _size(head)) <= limit // 2 else cut


def _end_of(text: str, limit: int) -> str:
    # Cut before encoding, so that a much longer text is never encoded as a whole. "…" takes six bytes in JSON.
    if len(text) > limit:
        text = "…" + text[-limit + 6 :]
    while (size := _size(text)) > limit:
        text = "…" + text[len(text) - len(text) * limit // size + 6 :]
    return text


def start_of(text: str, limit: int) -> str:
    """Shorten a message to `limit` bytes of JSON: its beginning says most."""
    text = text.rstrip("\n")
    if len(text) > limit:
        text = text[: limit - 6] + "…"
    while (size := _size(text)) > limit:
        text = text[: len(text) * limit // size - 6] + "…"
    return text


def _size(text: str) -> int:
    return len(json.dumps(text)) - 2
