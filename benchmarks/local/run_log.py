"""Run log: the file in which the tasks of a benchmark record their runs."""

import os


def record(line: str) -> None:
    """Append a line in one write, so that processes do not mix theirs."""
    file = os.open(os.environ["BENCH_RECORD"], os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{line}\n".encode())
    os.close(file)
