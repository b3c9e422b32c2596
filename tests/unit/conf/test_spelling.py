"""Spelling: the known name that errors suggest."""

import pytest

from django_delayq.conf.spelling import did_you_mean


@pytest.mark.parametrize(
    ("word", "suggested"),
    [("LAESE", "LEASE"), ("lease", "LEASE"), ("Graec", "Grace"), (5, None), ("", None), (None, None), ("xyz", None)],
)
def test_the_closest_known_name_is_suggested_in_its_own_case(word: object, suggested: str | None) -> None:
    expected = f" (did you mean {suggested!r}?)" if suggested else ""
    assert did_you_mean(word, ["LEASE", "Grace", 7]) == expected


def test_nothing_is_suggested_if_nothing_is_known() -> None:
    assert did_you_mean("LEASE", []) == ""
