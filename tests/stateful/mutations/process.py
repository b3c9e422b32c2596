"""Process with a planted bug: walk with the django_delayq that comes first on PYTHONPATH, and exit with the outcome.

Arguments: the folder that the package must come from, the URL of an empty Redis, the number of walks, and a name of
MACHINES.
"""

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path

PASSED, DETECTED, BROKEN = 0, 10, 20
#: Of each name the module of the machine that walks, and its class.
MACHINES = {
    "": ("scenarios", "Scenarios"),
    "limits": ("limited", "Limited"),
    "schedules": ("scheduled", "Scheduled"),
}


def main(folder: str, url: str, examples: int, machine: str = "") -> int:
    """Return SAW_IT only if an assertion of the machine failed: a package that cannot run proves nothing."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()

    import django_delayq

    if not Path(str(django_delayq.__file__)).is_relative_to(folder):
        print(f"django_delayq was imported from {django_delayq.__file__}")
        return BROKEN

    from redis import Redis

    from tests.stateful.machine.runner import walk

    module, name = MACHINES[machine]
    walks = getattr(import_module(f"tests.stateful.machine.{module}"), name)
    try:
        walk(Redis.from_url(url, protocol=2), url, examples=examples, derandomize=True, machine=walks)
    except AssertionError as error:
        print(f"{error}"[-4_000:])
        return DETECTED
    except BaseException:
        traceback.print_exc()
        return BROKEN
    return PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:]))
