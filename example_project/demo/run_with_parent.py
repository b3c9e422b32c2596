"""Run a script that ends with its parent process: `python -m demo.run_with_parent <script> <arguments>`.

Standard input is a pipe whose write end the parent holds. The kernel closes it when the parent ends, even by SIGKILL.
Then this process and its children, which share its process group, are killed.
"""

import os
import runpy
import signal
import sys
import threading


def kill_group_at_end_of_input() -> None:
    """Wait for the end of standard input, then kill the process group."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=kill_group_at_end_of_input, daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
