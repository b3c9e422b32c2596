"""Planted process: walk with the django_delayq that comes first on PYTHONPATH, and exit by what the machine saw.

Arguments: folder the package must come from, URL of an empty Redis, number of walks.
"""

import os
import sys
import traceback
from pathlib import Path

SAW_NOTHING, SAW_IT, BROKE = 0, 10, 20


def main(folder: str, url: str, examples: int) -> int:
    """Return SAW_IT only if an assertion of the machine failed: a package that cannot run proves nothing."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()

    import django_delayq

    if not Path(str(django_delayq.__file__)).is_relative_to(folder):
        print(f"django_delayq came from {django_delayq.__file__}")
        return BROKE

    from redis import Redis

    from tests.stateful.runner import walk

    try:
        walk(Redis.from_url(url, protocol=2), url, examples=examples, derandomize=True)
    except AssertionError as error:
        print(f"{error}"[-4_000:])
        return SAW_IT
    except BaseException:
        traceback.print_exc()
        return BROKE
    return SAW_NOTHING


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
