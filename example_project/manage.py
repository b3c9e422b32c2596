#!/usr/bin/env python
"""The marketplace's command line: `python manage.py <command>`."""

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    # A checkout runs without installing anything: the package lies one folder up.
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "marketplace.settings")
    execute_from_command_line(sys.argv)
