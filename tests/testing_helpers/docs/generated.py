"""Generated: the parts of pages that come from the code: `python -m tests.testing_helpers.docs.generated`.

The diagrams are drawn by docs/diagrams.py, and the table of keys is that of django_delayq/store/keys.py.
"""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from django_delayq.store.keys import CATALOGUE

DOCS = Path(__file__).parents[3] / "docs"
KEYS_PAGE = DOCS / "internals" / "how-it-works.md"
#: A placeholder, which HTML would take for an element.
_TAG = re.compile(r"<([^<>]+)>")
_MARKED = re.compile(r"(<!-- keys: .*? -->\n).*?(<!-- end of keys -->)", re.DOTALL)


def diagrams() -> dict[str, str]:
    """Return the name of each diagram -> its SVG."""
    return {name: draw().text() for name, draw in _module().DIAGRAMS.items()}


def keys_page() -> str:
    """Return the page with the table of all keys."""
    rows = ["| key | type | has |", "|---|---|---|"]
    for noun, (kind, text) in CATALOGUE.items():
        parts = text.replace("|", "\\|").split("`")
        # Within a span of code an entity would be shown as it is.
        shown = "`".join(part if at % 2 else _TAG.sub(r"&lt;\1&gt;", part) for at, part in enumerate(parts))
        rows.append(f"| `{noun}` | {kind} | {shown} |")
    table = "\n".join(rows)
    return _MARKED.sub(lambda marks: f"{marks[1]}{table}\n{marks[2]}", KEYS_PAGE.read_text())


def _module() -> ModuleType:
    # docs/ is no package: Sphinx reads it, and nothing imports it.
    spec = spec_from_file_location("diagrams", DOCS / "diagrams.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    for name, text in diagrams().items():
        (DOCS / "images" / name).write_text(text)
    KEYS_PAGE.write_text(keys_page())
