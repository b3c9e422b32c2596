"""Requirements: each one of the contract has a test with its number in the name."""

import re
from pathlib import Path

LAST = 37


def test_every_requirement_is_named_by_a_test() -> None:
    names = " ".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert {int(number) for number in re.findall(r"_?r(\d\d)_", names)} == set(range(1, LAST + 1))
