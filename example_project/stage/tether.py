"""Run a script that ends with its starter: `python -m stage.tether <script> <arguments>`.

Standard input is a pipe whose other end the starter holds. It closes when the starter ends, however that
came: then this process and all its children, which are its process group, end too.
"""

import os
import runpy
import signal
import sys
import threading


def watch() -> None:
    """Wait for the end of the starter."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=watch, daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
