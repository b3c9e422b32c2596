"""The documentation site: `make docs` builds it. Nothing is fetched while it is built, and its pages load nothing."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import django  # noqa: E402
from django.conf import settings  # noqa: E402

import django_delayq  # noqa: E402

# autodoc imports the package, whose modules need settings. They connect to nothing.
settings.configure(
    SECRET_KEY="docs",
    USE_TZ=True,
    INSTALLED_APPS=["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django_delayq"],
    DELAYQ={"REDIS": "redis://localhost:6379/0"},
)
django.setup()

project = "django_delayq"
author = "The django_delayq developers"
copyright = author
version = release = django_delayq.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
suppress_warnings: list[str] = []

# Headings get the anchors that GitHub gives them, so that a link works in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "tasklist"]

# Options and values that a sentence names can be copied: `--grow` stays two hyphens, and quotes stay straight.
smartquotes = False

# Docstrings are prose with `code`.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"django_delayq {release}"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "https://django-delayq.readthedocs.io/en/stable/")
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "source_repository": "https://github.com/django-delayq/django-delayq/",
    "source_branch": "main",
    "source_directory": "docs/",
}
